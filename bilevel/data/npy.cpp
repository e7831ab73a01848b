// The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include "bilevel/data/npy.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "bilevel/data/file_error.h"
#include "bilevel/data/large_tensor.h"
#include "bilevel/data/npy_header.h"
#include "bilevel/data/write_file.h"

namespace bilevel {
namespace {

static_assert(std::endian::native == std::endian::little, "npy files are read and written without swapping");

constexpr std::string_view magic = "\x93NUMPY";
// NumPy writes 118 bytes for a plain array; the longest legal shape fits many times.
constexpr int64_t largest_header = 65536;

// What a stored type is read as; `raw` has the same width as one stored element.
struct Type {
  std::string_view code;
  at::ScalarType raw;
  at::ScalarType result;
};
constexpr std::array<Type, 11> types{{{"f2", at::kHalf, at::kHalf},
                                      {"f4", at::kFloat, at::kFloat},
                                      {"f8", at::kDouble, at::kDouble},
                                      {"i1", at::kChar, at::kChar},
                                      {"i2", at::kShort, at::kShort},
                                      {"i4", at::kInt, at::kInt},
                                      {"i8", at::kLong, at::kLong},
                                      {"u1", at::kByte, at::kByte},
                                      {"b1", at::kByte, at::kBool},
                                      {"u2", at::kShort, at::kInt},
                                      {"u4", at::kInt, at::kLong}}};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    // stat, not std::filesystem: LibTorch 2's wheels export parts of an older libstdc++'s that clash with
    // ours.
    struct ::stat status {};
    if (::stat(path.c_str(), &status) != 0) no_file_error(path);
    // A pipe or a device has no size to check against.
    if (!S_ISREG(status.st_mode)) fail(0, "a regular file", "something else", "check the path");
    size_ = status.st_size;
    is_file_ = true;
    file_ = std::make_unique<std::ifstream>(path, std::ios::binary);
    if (!*file_) fail(0, "a readable file", std::strerror(errno), "check its permissions");
  }

  Reader(const std::string& name, const std::string& bytes)
      : path_(name),
        file_(std::make_unique<std::istringstream>(bytes)),
        size_(static_cast<int64_t>(bytes.size())) {}

  Tensor read() {
    const NpyHeader header = read_header();
    const Type& type = type_of(header.descr);
    Tensor raw = read_data(header, type);
    if (header.descr[0] == '>') swap_bytes(raw);
    if (type.result == at::kBool) return raw.ne(0);  // a bool of any other byte is undefined behaviour
    if (type.code == "u2") return raw.to(at::kInt).bitwise_and_(int64_t{0xffff});
    if (type.code == "u4") return raw.to(at::kLong).bitwise_and_(int64_t{0xffffffff});
    return raw;
  }

 private:
  [[noreturn]] void fail(int64_t offset, std::string_view expected, std::string_view found,
                         std::string_view hint) const {
    npy_error(path_, offset, expected, found, hint);
  }

  void read_bytes(void* to, int64_t count) {
    file_->read(static_cast<char*>(to), count);
    if (file_->gcount() != count) {
      fail(offset_ + file_->gcount(), fmt::format("{} more bytes", count - file_->gcount()), "the file's end",
           "the file shrank or its disk failed while it was read");
    }
    offset_ += count;
  }
  void require(int64_t count, std::string_view what) const {
    if (size_ - offset_ < count) {
      fail(offset_, fmt::format("{} ({} bytes)", what, count), fmt::format("{} bytes", size_ - offset_),
           "the file is cut short: copy or download it again");
    }
  }

  NpyHeader read_header() {
    std::array<char, 8> start{};
    require(start.size(), "NumPy's magic and version");
    read_bytes(start.data(), start.size());
    if (std::string_view(start.data(), magic.size()) != magic) {
      fail(0, printable(magic), printable({start.data(), magic.size()}),
           "is it a .npy file? (.npz is a zip of them)");
    }
    const int major = static_cast<unsigned char>(start[6]);
    const int minor = static_cast<unsigned char>(start[7]);
    if (major < 1 || major > 3 || minor != 0) {
      fail(6, "format version 1.0, 2.0 or 3.0", fmt::format("{}.{}", major, minor),
           "save it with numpy.save");
    }
    uint32_t length = 0;
    const int64_t width = major == 1 ? 2 : 4;
    require(width, "the header's length");
    const int64_t length_at = offset_;
    read_bytes(&length, width);
    if (length > largest_header) {
      fail(length_at, fmt::format("a header of at most {} bytes", largest_header), fmt::format("{}", length),
           "the file is damaged, or holds a structured type");
    }
    require(length, "the header");
    std::string text(length, '\0');
    header_at_ = offset_;
    read_bytes(text.data(), length);
    return parse_npy_header(path_, header_at_, text);
  }

  const Type& type_of(const std::string& descr) const {
    const std::string_view code = descr.empty() ? "" : std::string_view(descr).substr(1);
    for (const Type& type : types) {
      if (type.code == code && std::string_view("<>|=").find(descr[0]) != std::string_view::npos) return type;
    }
    if (descr.find('O') != std::string::npos) {
      fail(header_at_, "numbers", fmt::format("pickled Python objects (descr {})", printable(descr)),
           "they could run any code and are never loaded: convert with array.astype(float), names of classes "
           "with np.unique(y, return_inverse=True)[1]");
    }
    if (!code.empty() && (code[0] == 'U' || code[0] == 'S')) {
      fail(header_at_, "numbers", fmt::format("text (descr {})", printable(descr)),
           "number what it names: np.unique(y, return_inverse=True)[1]");
    }
    std::vector<std::string_view> codes;
    for (const Type& type : types) codes.push_back(type.code);
    fail(header_at_, fmt::format("a type among {}", fmt::join(codes, " ")),
         fmt::format("descr {}", printable(descr)), "convert with array.astype(...)");
  }

  Tensor read_data(const NpyHeader& header, const Type& type) {
    const int64_t width = static_cast<int64_t>(c10::elementSize(type.raw));
    // LibTorch's strides count an empty dimension as 1, so they must not overflow either. Twice the width,
    // because unsigned integers are widened.
    int64_t reach = 2 * width;
    bool fits = true;
    int64_t count = 1;
    for (const int64_t length : header.shape) {
      fits = fits && !__builtin_mul_overflow(reach, std::max<int64_t>(length, 1), &reach);
      if (fits) count *= length;
    }
    const std::string shape = fmt::format("({})", fmt::join(header.shape, ", "));
    const int64_t present = size_ - offset_;
    if (!fits || count * width != present) {
      fail(offset_,
           fits ? fmt::format("{} bytes of data for shape {} of {}", count * width, shape, header.descr)
                : fmt::format("a shape whose bytes 63 bits can count, not {}", shape),
           fmt::format("{} bytes", present),
           !fits || count * width > present
               ? "the file is cut short or damaged: copy or download it again"
               : "the file is damaged or holds several arrays: save each on its own");
    }
    std::vector<int64_t> stored = header.shape;
    if (header.fortran_order) std::reverse(stored.begin(), stored.end());
    const bool as_stored = header.descr[0] != '>' && type.raw == type.result && !header.fortran_order;
    if (is_file_ && as_stored && present >= bytes_to_map() && offset_ % width == 0) {
      return map_file(path_, offset_, stored, type.raw);
    }
    Tensor raw = at::empty(stored, at::TensorOptions().dtype(type.raw).device(at::kCPU));
    read_bytes(raw.data_ptr(), present);
    if (!header.fortran_order || stored.size() < 2) return raw;
    std::vector<int64_t> reversed(stored.size());
    for (size_t i = 0; i < reversed.size(); ++i) reversed[i] = static_cast<int64_t>(reversed.size() - 1 - i);
    return raw.permute(reversed).contiguous();
  }

  static void swap_bytes(Tensor& raw) {
    const auto width = static_cast<int64_t>(raw.element_size());
    auto* bytes = static_cast<unsigned char*>(raw.data_ptr());
    for (int64_t i = 0; i < raw.numel(); ++i) std::reverse(bytes + i * width, bytes + (i + 1) * width);
  }

  const std::string& path_;
  std::unique_ptr<std::istream> file_;
  bool is_file_ = false;  // not bytes in memory
  int64_t size_ = 0;
  int64_t offset_ = 0;
  int64_t header_at_ = 0;
};

std::string descr_of(at::ScalarType type) {
  if (type == at::kByte) return "|u1";
  if (type == at::kBool) return "|b1";
  for (const Type& row : types) {
    if (row.raw != type || row.result != type) continue;
    return fmt::format("{}{}", type == at::kChar ? '|' : '<', row.code);
  }
  throw std::invalid_argument(fmt::format(
      "write_npy: a tensor of {} cannot be written; convert it to float, double, an integer or bool first",
      at::toString(type)));
}

}  // namespace

Tensor read_npy(const std::string& path) { return Reader(path).read(); }

Tensor npy_of(const std::string& name, const std::string& bytes) { return Reader(name, bytes).read(); }

namespace {

void put_npy(std::ostream& file, const Tensor& tensor) {
  const std::string descr = descr_of(tensor.scalar_type());
  const Tensor data = tensor.detach().to(at::kCPU).contiguous().resolve_neg();
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                       fmt::join(data.sizes(), ", "), data.dim() == 1 ? "," : "");
  const size_t start = magic.size() + 4;
  // Padded so that the data begins at a multiple of 64 bytes, and ended by a newline: both are in the format.
  dictionary.append(63 - (start + dictionary.size()) % 64, ' ');
  dictionary += '\n';
  const auto length = static_cast<uint16_t>(dictionary.size());

  file << magic << '\x01' << '\0';
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << dictionary;
  file.write(static_cast<const char*>(data.data_ptr()), static_cast<std::streamsize>(data.nbytes()));
}

void require_dense(const Tensor& tensor, const std::string& what) {
  if (tensor.defined() && tensor.layout() == at::kStrided) return;
  throw std::invalid_argument(fmt::format("write_npy: {}: the tensor must be defined and dense", what));
}

}  // namespace

void write_npy(const std::string& path, const Tensor& tensor) {
  require_dense(tensor, path);
  (void)descr_of(tensor.scalar_type());  // before a file is begun
  write_file(path, [&](std::ostream& file) { put_npy(file, tensor); });
}

std::string npy_bytes(const Tensor& tensor) {
  require_dense(tensor, "in memory");
  std::ostringstream bytes;
  put_npy(bytes, tensor);
  return bytes.str();
}

}  // namespace bilevel
