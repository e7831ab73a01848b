#include "bilevel/data/byte_source.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bilevel/data/file_error.h"
#include "bilevel/data/gzip.h"
#include "bilevel/data/xz.h"

namespace bilevel {
namespace {

constexpr size_t step_bytes = size_t{1} << 16;  // a promise is paid for as it is kept, in steps that grow

class PlainSource : public ByteSource {
 public:
  using ByteSource::ByteSource;
  int64_t most_bytes() const override { return file().size(); }

 protected:
  size_t read_some(char* to, size_t count) override { return file().read(to, count); }
};

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // stat, not std::filesystem: LibTorch 2's wheels export parts of an older libstdc++'s that clash with ours.
  struct ::stat status {};
  if (::stat(path.c_str(), &status) != 0) no_file_error(path);
  if (!S_ISREG(status.st_mode)) {
    byte_error(path, 0, "a regular file", S_ISDIR(status.st_mode) ? "a folder" : "something else",
               "check the path");
  }
  size_ = status.st_size;
  file_.reset(std::fopen(path.c_str(), "rbe"));
  if (!file_) byte_error(path, 0, "a readable file", std::strerror(errno), "check its permissions");
}

size_t InputFile::read(char* to, size_t count) {
  const size_t got = std::fread(to, 1, count, file_.get());
  if (got < count && std::ferror(file_.get()) != 0) {
    byte_error(path_, std::ftell(file_.get()), "readable bytes", std::strerror(errno), "did its disk fail?");
  }
  return got;
}

void InputFile::rewind() { std::rewind(file_.get()); }

size_t ByteSource::read(char* to, size_t count) {
  size_t got = 0;
  while (got < count) {
    const size_t some = read_some(to + got, count - got);
    if (some == 0) break;
    got += some;
    offset_ += static_cast<int64_t>(some);
    if (offset_ > limit_) {
      byte_error(path(), limit_, fmt::format("at most {} bytes", limit_), "more",
                 "the file is not what it should be, or too large for this reader");
    }
  }
  return got;
}

namespace {

enum class Stored { plain, gzip, xz };
Stored how_stored(InputFile& file) {
  std::array<char, 6> start{};
  const std::string_view magic(start.data(), file.read(start.data(), start.size()));
  file.rewind();
  if (magic.starts_with("\x1f\x8b")) return Stored::gzip;
  const bool xz = magic == std::string_view(
                               "\xfd"
                               "7zXZ\0",
                               6);
  return xz ? Stored::xz : Stored::plain;
}

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path, int64_t limit) {
  InputFile file(path);
  const Stored stored = how_stored(file);
  if (stored == Stored::gzip) return open_gzip(std::move(file), limit);
  if (stored == Stored::xz) return open_xz(std::move(file), limit);
  return std::make_unique<PlainSource>(std::move(file), limit);
}

bool is_stored_plain(const std::string& path) {
  InputFile file(path);
  return how_stored(file) == Stored::plain;
}

std::string read_promised(ByteSource& source, int64_t count, std::string_view what) {
  const int64_t offset = source.offset();
  const auto cut_short = [&](std::string_view found) {
    byte_error(source.path(), offset, fmt::format("{} ({} bytes)", what, count), found,
               "the file is cut short or damaged: copy or download it again");
  };
  if (count < 0 || count > source.most_bytes() - offset) {
    cut_short(fmt::format("room for {} bytes at most", source.most_bytes() - offset));
  }
  std::string bytes;
  while (std::cmp_less(bytes.size(), count)) {
    const size_t had = bytes.size();
    // Growing by a half keeps copies few without running far ahead of what has arrived.
    const size_t step = std::min(static_cast<size_t>(count) - had, std::max(step_bytes, had / 2));
    bytes.resize(had + step);
    const size_t got = source.read(bytes.data() + had, step);
    if (got < step) cut_short(fmt::format("{} bytes", had + got));
  }
  return bytes;
}

void expect_end(ByteSource& source, std::string_view after) {
  char next = 0;
  const int64_t offset = source.offset();
  if (source.read(&next, 1) != 0) {
    byte_error(source.path(), offset, fmt::format("the file's end after {}", after), "more bytes",
               "the file is damaged, or its header belongs to another file");
  }
}

std::string read_file(const std::string& path, int64_t limit) {
  const std::unique_ptr<ByteSource> source = open_bytes(path, limit);
  std::string bytes;
  for (;;) {
    const size_t had = bytes.size();
    const int64_t expected = std::max<int64_t>(source->most_bytes() - source->offset(), 0) + 1;
    const size_t step =
        static_cast<size_t>(std::min(expected, static_cast<int64_t>(std::max(step_bytes, had / 2))));
    bytes.resize(had + step);
    const size_t got = source->read(bytes.data() + had, step);
    bytes.resize(had + got);
    if (got < step) return bytes;
  }
}

}  // namespace bilevel
