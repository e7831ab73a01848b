#include "bilevel/data/npy_header.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>

namespace bilevel {
namespace {

constexpr size_t most_dimensions = 64;  // LibTorch's own limit

// Reads the header's Python dictionary: three known keys with literals, and nothing else.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, int64_t offset, std::string_view text)
      : path_(path), offset_(offset), text_(text) {}

  NpyHeader parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<int64_t>> shape;
    expect('{');
    while (!accept('}')) {
      const size_t key_at = position_;
      const std::string key = read_string();
      expect(':');
      if (key == "descr" && !descr) {
        descr = read_descr();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = read_boolean();
      } else if (key == "shape" && !shape) {
        shape = read_shape();
      } else {
        fail(key_at, "each of 'descr', 'fortran_order' and 'shape' once", printable(key));
      }
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (position_ != text_.size()) fail(position_, "only spaces after the dictionary", rest(position_));
    if (!descr || !fortran_order || !shape) {
      fail(0, "the keys 'descr', 'fortran_order' and 'shape'", rest(0));
    }
    return {*descr, *fortran_order, *shape};
  }

 private:
  [[noreturn]] void fail(size_t position, std::string_view expected, std::string_view found,
                         std::string_view hint = "the file is damaged or was not written by NumPy") const {
    npy_error(path_, offset_ + static_cast<int64_t>(position), expected, found, hint);
  }
  std::string rest(size_t position) const {
    return position < text_.size() ? printable(text_.substr(position)) : "the header's end";
  }

  void skip_space() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) ++position_;
  }
  char peek() {
    skip_space();
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool accept(char wanted) {
    if (peek() != wanted || position_ >= text_.size()) return false;
    ++position_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(position_, fmt::format("'{}'", wanted), rest(position_));
  }

  std::string read_string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(position_, "a quoted string", rest(position_));
    const size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) fail(position_, "a quoted string with an end", rest(position_));
    const std::string result(text_.substr(position_ + 1, end - position_ - 1));
    position_ = end + 1;
    return result;
  }
  std::string read_descr() {
    if (peek() == '[') {
      fail(position_, "one plain type", "a structured type " + rest(position_),
           "save each field as its own array: np.save(name, array[field])");
    }
    return read_string();
  }
  bool read_boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(position_, word.size()) == word) {
        position_ += word.size();
        return word == "True";
      }
    }
    fail(position_, "True or False", rest(position_));
  }
  std::vector<int64_t> read_shape() {
    std::vector<int64_t> lengths;
    expect('(');
    while (!accept(')')) {
      if (lengths.size() == most_dimensions) {
        fail(position_, fmt::format("at most {} dimensions", most_dimensions), "more");
      }
      lengths.push_back(read_length());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return lengths;
  }
  int64_t read_length() {
    skip_space();
    const size_t begin = position_;
    int64_t value = 0;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[position_] - '0', &value)) {
        fail(begin, "a length below 2^63", rest(begin));
      }
      ++position_;
    }
    if (position_ == begin) fail(begin, "a length, 0 or more", rest(position_));
    if (position_ < text_.size() && text_[position_] == 'L') ++position_;  // Python 2 wrote (3L, 4L)
    return value;
  }

  const std::string& path_;
  int64_t offset_;
  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(const std::string& path, int64_t offset, std::string_view text) {
  return HeaderParser(path, offset, text).parse();
}

void npy_error(const std::string& path, int64_t offset, std::string_view expected, std::string_view found,
               std::string_view hint) {
  throw std::runtime_error(
      fmt::format("{}: byte {}: expected {}, found {}; {}", path, offset, expected, found, hint));
}

std::string printable(std::string_view bytes) {
  std::string result = "'";
  for (const char byte : bytes.substr(0, 40)) {
    const auto code = static_cast<unsigned char>(byte);
    result += code >= 32 && code < 127 ? std::string(1, byte) : fmt::format("\\x{:02x}", code);
  }
  return result + (bytes.size() > 40 ? "...'" : "'");
}

}  // namespace bilevel
