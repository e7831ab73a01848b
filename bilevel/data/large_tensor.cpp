#include "bilevel/data/large_tensor.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace bilevel {
namespace {

constexpr int64_t default_bytes_to_map = int64_t{512} << 20;
constexpr int64_t part_bytes = int64_t{16} << 20;

int64_t bytes_of(at::IntArrayRef shape, at::ScalarType type) {
  auto bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t length : shape) bytes *= length;
  return bytes;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// `flags`: MAP_PRIVATE or MAP_SHARED. The mapping begins at a whole page and goes with the tensor.
Tensor map(const Descriptor& file, const std::string& name, int flags, int64_t offset, at::IntArrayRef shape,
           at::ScalarType type) {
  const int64_t page = ::sysconf(_SC_PAGESIZE), before = offset % page;
  const auto length = static_cast<size_t>(bytes_of(shape, type) + before);
  void* const begin =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, file.number(), offset - before);
  if (begin == MAP_FAILED) {
    throw std::runtime_error(fmt::format("{}: {} bytes of it cannot be mapped into memory: {}", name, length,
                                         std::strerror(errno)));
  }
  return at::from_blob(
      static_cast<char*>(begin) + before, shape, [begin, length](void*) { ::munmap(begin, length); },
      at::TensorOptions().dtype(type).device(at::kCPU));
}

std::string folder_for_large_files() {
  const char* given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/var/tmp";
}

// A file without a name, which goes with its last user.
int open_unnamed(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) return file;
  std::string name = folder + "/bilevel-data-XXXXXX";  // a file system without O_TMPFILE
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

int64_t bytes_to_map() {
  const char* given = std::getenv("BILEVEL_MAP_BYTES");
  if (given == nullptr || *given == '\0') return default_bytes_to_map;
  char* end = nullptr;
  const long long bytes = std::strtoll(given, &end, 10);
  if (*end != '\0' || bytes < 1) {
    throw std::invalid_argument(
        fmt::format("BILEVEL_MAP_BYTES = {}: must be a whole number of bytes, at least 1", given));
  }
  return bytes;
}

Tensor map_file(const std::string& path, int64_t offset, at::IntArrayRef shape, at::ScalarType type) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) {
    throw std::runtime_error(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  }
  return map(file, path, MAP_PRIVATE, offset, shape, type);
}

Tensor empty_in_memory_or_file(at::IntArrayRef shape, at::ScalarType type) {
  const int64_t bytes = bytes_of(shape, type);
  if (bytes < bytes_to_map()) return at::empty(shape, at::TensorOptions().dtype(type).device(at::kCPU));
  const std::string folder = folder_for_large_files();
  const Descriptor file(open_unnamed(folder));
  // All of it now: a page that finds no room later would end the program.
  const int error = file.number() < 0 ? errno : ::posix_fallocate(file.number(), 0, bytes);
  if (error != 0) {
    throw std::runtime_error(fmt::format(
        "{}: a file for {} bytes of data cannot be made there: {}; set TMPDIR to a folder with room", folder,
        bytes, std::strerror(error)));
  }
  return map(file, folder, MAP_SHARED, 0, shape, type);
}

Tensor select_rows(const Tensor& from, const Tensor& positions) {
  std::vector<int64_t> shape = from.sizes().vec();
  shape.at(0) = positions.numel();
  if (!from.is_cpu() || bytes_of(shape, from.scalar_type()) < bytes_to_map()) {
    return from.index_select(0, positions);
  }
  Tensor result = empty_in_memory_or_file(shape, from.scalar_type());
  const int64_t row = static_cast<int64_t>(result.nbytes()) / shape[0],
                step = std::max<int64_t>(1, part_bytes / row);
  for (int64_t begin = 0; begin < shape[0]; begin += step) {
    const int64_t count = std::min(step, shape[0] - begin);
    Tensor part = result.narrow(0, begin, count);
    at::index_select_out(part, from, 0, positions.narrow(0, begin, count));
  }
  return result;
}

}  // namespace bilevel
