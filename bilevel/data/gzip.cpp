#include "bilevel/data/gzip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "bilevel/data/file_error.h"

#ifdef BILEVEL_HAS_ZLIB
#include <zlib.h>
#endif

namespace bilevel {

#ifdef BILEVEL_HAS_ZLIB
namespace {

class GzipSource : public ByteSource {
 public:
  GzipSource(InputFile file, int64_t limit) : ByteSource(std::move(file), limit) {
    // 15 is the largest window; 16 more asks for gzip's header and checksum.
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::runtime_error("zlib: cannot start");
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  // Deflate cannot expand a byte to more than 1032 (two bits for a match of 258).
  int64_t most_bytes() const override { return std::min(limit(), 1032 * file().size()); }

 protected:
  size_t read_some(char* to, size_t count) override {
    if (ended_) return 0;
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    const auto room = static_cast<uInt>(std::min<size_t>(count, size_t{1} << 30));
    stream_.avail_out = room;
    while (stream_.avail_out == room) {
      refill();
      if (stream_.avail_in == 0) {
        if (between_members_) {
          ended_ = true;
          return 0;
        }
        fail("more compressed bytes", "the file's end", "the file is cut short: copy or download it again");
      }
      between_members_ = false;
      const int status = ::inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) {
        ::inflateReset(&stream_);
        between_members_ = true;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        fail("gzip data", stream_.msg != nullptr ? stream_.msg : fmt::format("zlib's error {}", status),
             "the file is damaged: copy or download it again");
      }
    }
    return room - stream_.avail_out;
  }

 private:
  void refill() {
    if (stream_.avail_in != 0) return;
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(file().read(input_.data(), input_.size()));
  }
  [[noreturn]] void fail(std::string_view expected, std::string_view found, std::string_view hint) const {
    byte_error(path(), offset(), expected, found, hint);
  }

  z_stream stream_{};
  std::array<char, 1 << 16> input_{};
  bool between_members_ = false;
  bool ended_ = false;
};

}  // namespace

bool has_gzip() { return true; }

std::unique_ptr<ByteSource> open_gzip(InputFile file, int64_t limit) {
  return std::make_unique<GzipSource>(std::move(file), limit);
}
#else
bool has_gzip() { return false; }

std::unique_ptr<ByteSource> open_gzip(InputFile file, int64_t) {
  byte_error(file.path(), 0, "a plain file, as this build of bilevel has no zlib", "gzip data",
             "install zlib1g-dev and build again, or unpack it with gunzip first");
}
#endif

}  // namespace bilevel
