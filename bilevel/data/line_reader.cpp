#include "bilevel/data/line_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bilevel/data/file_error.h"

namespace bilevel {
namespace {

constexpr size_t first_buffer = size_t{1} << 20;
constexpr size_t longest_line = size_t{1} << 28;  // 30 million numbers

}  // namespace

LineReader::LineReader(const std::string& path, int64_t limit)
    : source_(open_bytes(path, limit)),
      // A small file need not pay for a large one's buffer; one byte more shows that it has ended.
      buffer_(std::min(first_buffer, static_cast<size_t>(source_->most_bytes()) + 1), '\0') {}

bool LineReader::next(std::string_view& line) {
  for (;;) {
    const auto* found =
        static_cast<const char*>(std::memchr(buffer_.data() + searched_, '\n', end_ - searched_));
    if (found != nullptr || (ended_ && begin_ < end_)) {
      const size_t stop = found != nullptr ? static_cast<size_t>(found - buffer_.data()) : end_;
      line = std::string_view(buffer_).substr(begin_, stop - begin_);
      begin_ = searched_ = found != nullptr ? stop + 1 : stop;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (number_++ == 0 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);  // UTF-8's mark
      return true;
    }
    if (ended_) return false;
    searched_ = end_;
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      searched_ -= begin_;
      begin_ = 0;
    } else if (end_ == buffer_.size()) {
      if (buffer_.size() >= longest_line) {
        line_error(path(), number_ + 1, fmt::format("a line of at most {} bytes", longest_line), "more",
                   "is it a text file?");
      }
      buffer_.resize(2 * buffer_.size());
    }
    const size_t room = buffer_.size() - end_;
    const size_t got = source_->read(buffer_.data() + end_, room);
    end_ += got;
    ended_ = got < room;
  }
}

}  // namespace bilevel
