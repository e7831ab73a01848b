// The format: https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html
#include "bilevel/data/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/npy_header.h"

namespace bilevel {
namespace {

constexpr int64_t block_bytes = 512;
constexpr int64_t largest_extended = int64_t{1} << 20;  // of a long name or a pax header
constexpr std::string_view damaged_tar = "the archive is cut short or damaged: copy or download it again";

using Block = std::array<char, block_bytes>;

std::string_view text(const Block& block, size_t offset, size_t length) {
  const std::string_view field(block.data() + offset, length);
  return field.substr(0, field.find('\0'));
}

// Octal digits, or GNU's base 256 for sizes that octal digits cannot hold.
std::optional<int64_t> number(const Block& block, size_t offset, size_t length) {
  const std::string_view field(block.data() + offset, length);
  int64_t value = 0;
  if ((static_cast<unsigned char>(field[0]) & 0x80) != 0) {
    if (field[0] != '\x80') return std::nullopt;  // negative, or beyond 2^88
    for (const char byte : field.substr(1)) {
      if (__builtin_mul_overflow(value, 256, &value)) return std::nullopt;
      value += static_cast<unsigned char>(byte);
    }
    return value;
  }
  const size_t begin = field.find_first_not_of(' ');
  if (begin == std::string_view::npos) return 0;
  for (const char digit : field.substr(begin)) {
    if (digit == ' ' || digit == '\0') break;
    if (digit < '0' || digit > '7') return std::nullopt;
    value = value * 8 + (digit - '0');
  }
  return value;
}

bool checksum_fits(const Block& block) {
  int64_t sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return number(block, 148, 8) == sum;
}

struct Pax {
  std::optional<std::string> path;
  std::optional<int64_t> size;
};

// Records "LENGTH KEY=VALUE\n", the length counting itself.
bool parse_pax(std::string_view records, Pax& pax) {
  while (!records.empty()) {
    const size_t space = records.find(' ');
    size_t length = 0;
    if (space == std::string_view::npos || !parse_number(records.substr(0, space), length) ||
        length < space + 2 || length > records.size() || records[length - 1] != '\n') {
      return false;
    }
    const std::string_view record = records.substr(space + 1, length - space - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "path") pax.path = value;
    if (key == "size") {
      int64_t size = 0;
      if (!parse_number(value, size) || size < 0) return false;
      pax.size = size;
    }
    records.remove_prefix(length);
  }
  return true;
}

}  // namespace

bool TarReader::next(TarEntry& entry) {
  skip(left_ + padding_);
  left_ = padding_ = 0;
  Pax pax;
  std::optional<std::string> long_name;
  for (;;) {
    const int64_t offset = source_.offset();
    const auto fail = [&](std::string_view expected, std::string_view found) {
      byte_error(source_.path(), offset, expected, found, damaged_tar);
    };
    Block block{};
    const size_t got = source_.read(block.data(), block.size());
    if (got < block.size()) {
      fail("a tar header of 512 bytes, or the archive's end mark", fmt::format("{} bytes", got));
    }
    if (std::all_of(block.begin(), block.end(), [](char byte) { return byte == '\0'; })) {
      // Reading on verifies the checksum of a compressed archive.
      while (source_.read(block.data(), block.size()) == block.size()) {
      }
      return false;
    }
    if (!checksum_fits(block)) fail("a tar header with its checksum", printable({block.data(), 100}));
    const std::optional<int64_t> size = number(block, 124, 12);
    if (!size) fail("a size in a tar header", printable({block.data() + 124, 12}));
    const char type = block[156];
    if (type == 'x' || type == 'L' || type == 'K' || type == 'g') {
      const std::string data = extended(*size);
      if (type == 'L') long_name = data.substr(0, data.find('\0'));
      if (type == 'x' && !parse_pax(data, pax)) fail("a pax header of LENGTH KEY=VALUE", printable(data));
      continue;
    }
    const std::string_view prefix = std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6)
                                        ? text(block, 345, 155)
                                        : "";
    const std::string short_name =
        fmt::format("{}{}{}", prefix, prefix.empty() ? "" : "/", text(block, 0, 100));
    entry.name = pax.path ? *pax.path : long_name ? *long_name : short_name;
    entry.regular = (type == '0' || type == '\0' || type == '7') && !entry.name.ends_with('/');
    // Links and folders have no data, whatever their size says; other types are skipped with theirs.
    const bool data = type < '1' || type > '6';
    entry.size = data ? pax.size.value_or(*size) : 0;
    left_ = entry.size;
    padding_ = (block_bytes - entry.size % block_bytes) % block_bytes;
    if (left_ > source_.most_bytes() - source_.offset()) {
      fail(fmt::format("{} ({} bytes)", printable(entry.name), left_),
           fmt::format("room for {} bytes at most", source_.most_bytes() - source_.offset()));
    }
    return true;
  }
}

size_t TarReader::read(char* to, size_t count) {
  const auto wanted = static_cast<size_t>(std::min<int64_t>(left_, static_cast<int64_t>(count)));
  const int64_t offset = source_.offset();
  const size_t got = source_.read(to, wanted);
  if (got < wanted) {
    byte_error(source_.path(), offset, fmt::format("{} more bytes of an entry", left_),
               fmt::format("{} bytes", got), damaged_tar);
  }
  left_ -= static_cast<int64_t>(got);
  return got;
}

std::string TarReader::content(int64_t largest) {
  if (left_ > largest) {
    byte_error(source_.path(), source_.offset(), fmt::format("an entry of at most {} bytes", largest),
               fmt::format("{}", left_), "the archive is not what it should be");
  }
  std::string bytes = read_promised(source_, left_, "an entry");
  left_ = 0;
  return bytes;
}

void TarReader::skip(int64_t count) {
  std::array<char, 1 << 14> ignored{};
  const int64_t offset = source_.offset();
  for (int64_t left = count; left > 0;) {
    const auto step = static_cast<size_t>(std::min<int64_t>(left, ignored.size()));
    const size_t got = source_.read(ignored.data(), step);
    left -= static_cast<int64_t>(got);
    if (got < step) {
      byte_error(source_.path(), offset, fmt::format("{} more bytes of an entry", count),
                 fmt::format("{} bytes", count - left), damaged_tar);
    }
  }
}

std::string TarReader::extended(int64_t size) {
  if (size > largest_extended) {
    byte_error(source_.path(), source_.offset(),
               fmt::format("a long name or pax header of at most {} bytes", largest_extended),
               fmt::format("{}", size), damaged_tar);
  }
  std::string data = read_promised(source_, size, "a long name or pax header");
  skip((block_bytes - size % block_bytes) % block_bytes);
  return data;
}

}  // namespace bilevel
