#include "bilevel/data/xz.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <utility>

#include "bilevel/data/file_error.h"

#ifdef BILEVEL_HAS_LZMA
#include <lzma.h>
#endif

namespace bilevel {

#ifdef BILEVEL_HAS_LZMA
namespace {

constexpr uint64_t largest_dictionary = uint64_t{1} << 28;  // xz -9 needs 65 MiB; a file may ask for 4 GiB

class XzSource : public ByteSource {
 public:
  XzSource(InputFile file, int64_t limit) : ByteSource(std::move(file), limit) {
    if (::lzma_stream_decoder(&stream_, largest_dictionary, LZMA_CONCATENATED) != LZMA_OK) {
      throw std::runtime_error("liblzma: cannot start");
    }
  }
  ~XzSource() override { ::lzma_end(&stream_); }
  XzSource(const XzSource&) = delete;
  XzSource& operator=(const XzSource&) = delete;

  int64_t most_bytes() const override { return limit(); }  // xz has no useful bound of its own

 protected:
  size_t read_some(char* to, size_t count) override {
    if (ended_) return 0;
    stream_.next_out = reinterpret_cast<uint8_t*>(to);
    stream_.avail_out = count;
    while (stream_.avail_out == count) {
      if (stream_.avail_in == 0 && !input_ended_) {
        stream_.next_in = reinterpret_cast<const uint8_t*>(input_.data());
        stream_.avail_in = file().read(input_.data(), input_.size());
        input_ended_ = stream_.avail_in < input_.size();
      }
      const lzma_ret status = ::lzma_code(&stream_, input_ended_ ? LZMA_FINISH : LZMA_RUN);
      if (status == LZMA_STREAM_END) {
        ended_ = true;
        break;
      }
      if (status != LZMA_OK) fail(status);
    }
    return count - stream_.avail_out;
  }

 private:
  [[noreturn]] void fail(lzma_ret status) const {
    if (status == LZMA_MEMLIMIT_ERROR) {
      byte_error(path(), offset(), fmt::format("a dictionary of at most {} bytes", largest_dictionary),
                 "more", "compress it again with xz -9 or less");
    }
    byte_error(path(), offset(), "xz data",
               status == LZMA_BUF_ERROR ? "the file's end"
                                        : fmt::format("liblzma's error {}", static_cast<int>(status)),
               "the file is cut short or damaged: copy or download it again");
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
  std::array<char, 1 << 16> input_{};
  bool input_ended_ = false;
  bool ended_ = false;
};

}  // namespace

bool has_xz() { return true; }

std::unique_ptr<ByteSource> open_xz(InputFile file, int64_t limit) {
  return std::make_unique<XzSource>(std::move(file), limit);
}
#else
bool has_xz() { return false; }

std::unique_ptr<ByteSource> open_xz(InputFile file, int64_t) {
  byte_error(file.path(), 0, "a plain or gzip file, as this build of bilevel has no liblzma", "xz data",
             "install liblzma-dev and build again, or unpack it with unxz first");
}
#endif

}  // namespace bilevel
