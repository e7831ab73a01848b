#include "bilevel/data/file_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace bilevel {

void byte_error(const std::string& path, int64_t offset, std::string_view expected, std::string_view found,
                std::string_view hint) {
  throw std::runtime_error(
      fmt::format("{}: byte {}: expected {}, found {}; {}", path, offset, expected, found, hint));
}

void line_error(const std::string& path, int64_t line, std::string_view expected, std::string_view found,
                std::string_view hint) {
  const std::string where = line > 0 ? fmt::format("line {}: ", line) : "";
  throw std::runtime_error(
      fmt::format("{}: {}expected {}, found {}; {}", path, where, expected, found, hint));
}

void file_error(std::string_view path, std::string_view expected, std::string_view found,
                std::string_view hint) {
  throw std::runtime_error(fmt::format("{}: expected {}, found {}; {}", path, expected, found, hint));
}

MissingFileError::MissingFileError(const std::string& path)
    : std::runtime_error(path + ": there is no such file; check the path"), path_(path) {}

void no_file_error(const std::string& path) {
  const int reason = errno;
  if (reason == ENOENT || reason == ENOTDIR) throw MissingFileError(path);
  file_error(path, "a readable file", std::strerror(reason), "check its path and its permissions");
}

}  // namespace bilevel
