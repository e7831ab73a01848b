#include "bilevel/run/checkpoint.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/sha256.h"

namespace bilevel {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensors are stored as they lie in memory");

constexpr std::string_view magic = "bilevel\n";
constexpr uint32_t archive_version = 1;
constexpr int64_t preamble_bytes = 24;
constexpr int64_t checksum_bytes = 64;
// JSON takes many times its text in memory: what is long belongs into a tensor.
constexpr int64_t header_limit = int64_t{16} << 20;
constexpr int depth_limit = 64;
constexpr size_t dimension_limit = 16;
constexpr std::string_view hint = "the file is damaged, or was not written by save_checkpoint";

struct Dtype {
  std::string_view name;
  at::ScalarType type;
};
constexpr std::array<Dtype, 7> dtypes{{{"float64", at::kDouble},
                                       {"float32", at::kFloat},
                                       {"float16", at::kHalf},
                                       {"bfloat16", at::kBFloat16},
                                       {"int64", at::kLong},
                                       {"int32", at::kInt},
                                       {"uint8", at::kByte}}};

// --- writing

// The file beside, which goes away unless it is renamed.
class FileBeside {
 public:
  explicit FileBeside(const std::string& path)
      : path_(path), beside_(fmt::format("{}.tmp-{}", path, ::getpid())) {
    struct ::stat status {};
    if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
      throw std::runtime_error(
          fmt::format("{}: exists and is not a file; it would be renamed: give a file's name", path));
    }
    descriptor_ = ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("create " + beside_);
  }
  ~FileBeside() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!beside_.empty()) ::unlink(beside_.c_str());
  }
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;

  void write(std::string_view bytes) {
    hash_.add(bytes);
    put(bytes);
  }
  void finish() {
    put(hash_.hex());
    if (::fsync(descriptor_) != 0) fail("write " + beside_ + " to the disk");
    const int closed = ::close(std::exchange(descriptor_, -1));
    if (closed != 0) fail("close " + beside_);
    const std::string previous = previous_checkpoint(path_);
    if (::rename(path_.c_str(), previous.c_str()) != 0 && errno != ENOENT) fail("rename it to " + previous);
    if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("rename " + beside_);
    beside_.clear();
    keep_names();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const int reason = errno;
    throw_file_error(
        path_, reason,
        fmt::format("cannot {}: {}; does the folder exist, and is there room?", what, std::strerror(reason)));
  }
  void put(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail("write " + beside_);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
  // A rename is on the disk when its folder is. Some file systems cannot be asked for that; they keep their
  // own promises.
  void keep_names() const {
    const size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    ::fsync(descriptor);
    ::close(descriptor);
  }

  std::string path_, beside_;
  int descriptor_ = -1;
  Sha256 hash_;
};

template <typename Integer>
std::string little_endian(Integer value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string_view dtype_name(const std::string& tensor, at::ScalarType type) {
  for (const Dtype& known : dtypes) {
    if (known.type == type) return known.name;
  }
  throw std::invalid_argument(
      fmt::format("checkpoint: tensor '{}' is {}, which cannot be stored: convert it first", tensor,
                  c10::toString(type)));
}

// nlohmann writes a NaN as null, which would come back as something else.
void require_finite(const json& value, const std::string& where) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    throw std::invalid_argument(
        fmt::format("checkpoint: metadata{} = {}: JSON holds finite numbers only; store it as a tensor",
                    where, value.get<double>()));
  }
  if (!value.is_structured()) return;
  for (const auto& [key, element] : value.items()) require_finite(element, where + "/" + key);
}

json to_json(const MachineFacts& facts) {
  return {{"version", facts.version}, {"torch", facts.torch},     {"blas", facts.blas},
          {"cpu", facts.cpu},         {"threads", facts.threads}, {"cuda", facts.cuda}};
}

// --- reading

// The file from front to back, hashed as it goes, with every error at its offset.
class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path) {}
  int64_t left() const { return file_.size() - offset_; }
  int64_t offset() const { return offset_; }

  void read(char* to, int64_t count, bool hashed = true) {
    const size_t got = file_.read(to, static_cast<size_t>(count));
    if (got != static_cast<size_t>(count)) {
      refuse(offset_, fmt::format("{} more bytes", count), fmt::format("{}", got));
    }
    if (hashed) hash_.add({to, got});
    offset_ += count;
  }
  template <typename Integer>
  Integer integer() {
    Integer value = 0;
    read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string checksum() { return hash_.hex(); }
  [[noreturn]] void refuse(int64_t at, std::string_view expected, std::string_view found) const {
    byte_error(file_.path(), at, expected, found, hint);
  }

 private:
  InputFile file_;
  int64_t offset_ = 0;
  Sha256 hash_;
};

// What a header says of one tensor, checked.
struct TensorEntry {
  std::string name;
  at::ScalarType type = at::kDouble;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

// A field of the header that must be there and of its type; every message of nlohmann's is turned into ours.
template <typename T>
T field(const Reader& reader, const json& object, const char* name, std::string_view expected) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  try {
    if (object.is_object() && found != object.end()) {
      // get<int64_t>() would cut a fraction off and a flag to 0 or 1.
      if constexpr (std::is_same_v<T, int64_t>) {
        if (found->is_number_integer() && !(found->is_number_unsigned() && found->get<uint64_t>() >> 63 != 0))
          return found->template get<int64_t>();
      } else {
        return found->template get<T>();
      }
    }
  } catch (const json::exception&) {
  }
  reader.refuse(preamble_bytes, fmt::format("'{}' in the header to be {}", name, expected),
                object.is_object() && found != object.end() ? found->type_name() : "nothing");
}

int64_t checked_elements(const Reader& reader, const std::string& name, const std::vector<int64_t>& shape) {
  // The product without the zeros too: LibTorch multiplies the others for its strides.
  int64_t elements = 1, strides = 1;
  bool fits = shape.size() <= dimension_limit;
  for (const int64_t size : shape) {
    fits = fits && size >= 0 && !__builtin_mul_overflow(elements, size, &elements) &&
           !__builtin_mul_overflow(strides, std::max<int64_t>(size, 1), &strides) &&
           strides < int64_t{1} << 56;
  }
  if (!fits) {
    reader.refuse(preamble_bytes,
                  fmt::format("at most {} sizes of tensor '{}', all at least 0, whose product fits",
                              dimension_limit, name),
                  fmt::format("{}", json(shape).dump()));
  }
  return elements;
}

TensorEntry checked_entry(const Reader& reader, const json& entry, int64_t expected_offset,
                          int64_t data_bytes) {
  TensorEntry result;
  result.name = field<std::string>(reader, entry, "name", "a string");
  const auto dtype = field<std::string>(reader, entry, "dtype", "a string");
  const Dtype* known = nullptr;
  for (const Dtype& d : dtypes) {
    if (d.name == dtype) known = &d;
  }
  if (known == nullptr) reader.refuse(preamble_bytes, "a known dtype of '" + result.name + "'", dtype);
  result.type = known->type;
  const json shape = field<json>(reader, entry, "shape", "a list of sizes");
  if (!shape.is_array() || shape.size() > dimension_limit) {
    reader.refuse(preamble_bytes, fmt::format("at most {} sizes of '{}'", dimension_limit, result.name),
                  shape.is_array() ? fmt::format("{}", shape.size()) : shape.type_name());
  }
  for (const json& size : shape) {
    if (!size.is_number_integer()) reader.refuse(preamble_bytes, "a size", size.type_name());
    result.shape.push_back(
        size.is_number_unsigned() && size.get<uint64_t>() >> 63 != 0 ? int64_t{-1} : size.get<int64_t>());
  }
  const auto offset = field<int64_t>(reader, entry, "offset", "a number of bytes");
  result.bytes = field<int64_t>(reader, entry, "bytes", "a number of bytes");
  if (offset != expected_offset) {
    reader.refuse(preamble_bytes, fmt::format("tensor '{}' at {}", result.name, expected_offset),
                  fmt::format("{}", offset));
  }
  if (result.bytes < 0 || result.bytes > data_bytes - offset) {
    reader.refuse(preamble_bytes,
                  fmt::format("at most {} bytes of tensor '{}', which is what the file still holds",
                              data_bytes - offset, result.name),
                  fmt::format("{}", result.bytes));
  }
  const int64_t elements = checked_elements(reader, result.name, result.shape);
  const auto item = static_cast<int64_t>(c10::elementSize(result.type));
  if (result.bytes % item != 0 || result.bytes / item != elements) {
    reader.refuse(preamble_bytes,
                  fmt::format("{} bytes for {} of {}", elements * item, json(result.shape).dump(), dtype),
                  fmt::format("{}", result.bytes));
  }
  return result;
}

json parsed_header(const Reader& reader, const std::string& text) {
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    if (depth > depth_limit) {
      reader.refuse(preamble_bytes, fmt::format("a header at most {} levels deep", depth_limit),
                    "a deeper one");
    }
    return true;
  };
  try {
    return json::parse(text, shallow);
  } catch (const json::exception& error) {
    reader.refuse(preamble_bytes, "a header in JSON", error.what());
  }
}

MachineFacts machine_from(const Reader& reader, const json& header) {
  const json facts = field<json>(reader, header, "machine", "an object");
  MachineFacts result;
  result.version = field<std::string>(reader, facts, "version", "a string");
  result.torch = field<std::string>(reader, facts, "torch", "a string");
  result.blas = field<std::string>(reader, facts, "blas", "a string");
  result.cpu = field<std::string>(reader, facts, "cpu", "a string");
  result.threads = static_cast<int>(field<int64_t>(reader, facts, "threads", "a number"));
  result.cuda = field<bool>(reader, facts, "cuda", "a flag");
  return result;
}

}  // namespace

std::string previous_checkpoint(const std::string& path) { return path + ".previous"; }

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  if (!checkpoint.metadata.is_object()) {
    throw std::invalid_argument(
        fmt::format("checkpoint: metadata is a JSON {}: must be an object", checkpoint.metadata.type_name()));
  }
  require_finite(checkpoint.metadata, "");
  json entries = json::array();
  std::vector<Tensor> stored;
  int64_t offset = 0;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!tensor.defined()) {
      throw std::invalid_argument(fmt::format("checkpoint: tensor '{}' is undefined: leave it out", name));
    }
    const std::string_view dtype = dtype_name(name, tensor.scalar_type());
    if (static_cast<size_t>(tensor.dim()) > dimension_limit) {
      throw std::invalid_argument(
          fmt::format("checkpoint: tensor '{}' has {} dimensions: at most {} are stored", name, tensor.dim(),
                      dimension_limit));
    }
    stored.push_back(tensor.detach().to(at::kCPU).contiguous());
    const auto bytes = static_cast<int64_t>(stored.back().nbytes());
    entries.push_back({{"name", name},
                       {"dtype", dtype},
                       {"shape", tensor.sizes().vec()},
                       {"offset", offset},
                       {"bytes", bytes}});
    offset += bytes;
  }
  const json header = {{"machine", to_json(machine_facts())},
                       {"metadata", checkpoint.metadata},
                       {"data_bytes", offset},
                       {"tensors", std::move(entries)}};
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception& error) {  // a string that is not UTF-8
    throw std::invalid_argument(
        fmt::format("checkpoint: metadata or a name is not valid text: {}", error.what()));
  }
  if (static_cast<int64_t>(text.size()) > header_limit) {
    throw std::invalid_argument(fmt::format(
        "checkpoint: the metadata makes a header of {} bytes: at most {}; store long data as a tensor",
        text.size(), header_limit));
  }
  FileBeside file(path);
  file.write(magic);
  file.write(little_endian(archive_version) + little_endian(uint32_t{0}) +
             little_endian(static_cast<uint64_t>(text.size())));
  file.write(text);
  for (const Tensor& tensor : stored) {
    file.write({static_cast<const char*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())});
  }
  file.finish();
}

Checkpoint read_checkpoint(const std::string& path) {
  Reader reader(path);
  if (reader.left() < preamble_bytes + checksum_bytes) {
    reader.refuse(0, fmt::format("a checkpoint of at least {} bytes", preamble_bytes + checksum_bytes),
                  fmt::format("{} bytes", reader.left()));
  }
  std::string start(magic.size(), '\0');
  reader.read(start.data(), static_cast<int64_t>(start.size()));
  if (start != magic) reader.refuse(0, "the first bytes of a checkpoint", "others");
  if (const auto version = reader.integer<uint32_t>(); version != archive_version) {
    reader.refuse(8, fmt::format("version {} of the format", archive_version), fmt::format("{}", version));
  }
  if (const auto zero = reader.integer<uint32_t>(); zero != 0) {
    reader.refuse(12, "zero", fmt::format("{}", zero));
  }
  const auto header_bytes = reader.integer<uint64_t>();
  const int64_t most = std::min(header_limit, reader.left() - checksum_bytes);
  if (header_bytes > static_cast<uint64_t>(most)) {
    reader.refuse(16, fmt::format("a header of at most {} bytes", most), fmt::format("{}", header_bytes));
  }
  std::string text(header_bytes, '\0');
  reader.read(text.data(), static_cast<int64_t>(header_bytes));
  const json header = parsed_header(reader, text);

  const int64_t data_begin = reader.offset();
  const auto data_bytes = field<int64_t>(reader, header, "data_bytes", "a number of bytes");
  if (data_bytes != reader.left() - checksum_bytes) {
    reader.refuse(data_begin, fmt::format("{} bytes of tensors", data_bytes),
                  fmt::format("{}", reader.left() - checksum_bytes));
  }
  Checkpoint result;
  result.metadata = field<json>(reader, header, "metadata", "an object");
  if (!result.metadata.is_object()) {
    reader.refuse(preamble_bytes, "'metadata' to be an object", result.metadata.type_name());
  }
  result.machine = machine_from(reader, header);
  const json entries = field<json>(reader, header, "tensors", "a list");
  if (!entries.is_array()) reader.refuse(preamble_bytes, "'tensors' to be a list", entries.type_name());
  for (const json& listed : entries) {
    const TensorEntry entry = checked_entry(reader, listed, reader.offset() - data_begin, data_bytes);
    Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.type));
    reader.read(static_cast<char*>(tensor.data_ptr()), entry.bytes);
    if (!result.tensors.emplace(entry.name, std::move(tensor)).second) {
      reader.refuse(preamble_bytes, "every tensor once", "'" + entry.name + "' twice");
    }
  }
  if (reader.left() != checksum_bytes) {
    reader.refuse(reader.offset(), "the tensors to fill the file",
                  fmt::format("{} bytes more", reader.left() - checksum_bytes));
  }
  const std::string expected = reader.checksum();
  std::string found(static_cast<size_t>(checksum_bytes), '\0');
  const int64_t at = reader.offset();
  reader.read(found.data(), checksum_bytes, false);
  if (found != expected) reader.refuse(at, "the SHA-256 " + expected, "another");
  return result;
}

Checkpoint load_checkpoint(const std::string& path) {
  std::string newest;
  try {
    return read_checkpoint(path);
  } catch (const std::runtime_error& error) {
    newest = error.what();
  }
  const std::string previous = previous_checkpoint(path);
  try {
    Checkpoint result = read_checkpoint(previous);
    result.warning = fmt::format("{}. The checkpoint before it, {}, was read instead.", newest, previous);
    return result;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(
        fmt::format("{}. Nor can the checkpoint before it be read: {}", newest, error.what()));
  }
}

}  // namespace bilevel
