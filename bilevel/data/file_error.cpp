#include "bilevel/data/file_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace bilevel {
namespace {

bool says_missing(int reason) { return reason == ENOENT || reason == ENOTDIR; }

}  // namespace

FileError::FileError(const std::string& path, const std::string& cause)
    : std::runtime_error(path + ": " + cause), path_(path), cause_(cause) {}

void byte_error(const std::string& path, int64_t offset, std::string_view expected, std::string_view found,
                std::string_view hint) {
  throw FileError(path, fmt::format("byte {}: expected {}, found {}; {}", offset, expected, found, hint));
}

void line_error(const std::string& path, int64_t line, std::string_view expected, std::string_view found,
                std::string_view hint) {
  const std::string where = line > 0 ? fmt::format("line {}: ", line) : "";
  throw FileError(path, fmt::format("{}expected {}, found {}; {}", where, expected, found, hint));
}

void file_error(std::string_view path, std::string_view expected, std::string_view found,
                std::string_view hint) {
  throw FileError(std::string(path), fmt::format("expected {}, found {}; {}", expected, found, hint));
}

MissingFileError::MissingFileError(const std::string& path)
    : FileError(path, "there is no such file; check the path") {}

void no_file_error(const std::string& path) {
  const int reason = errno;
  if (says_missing(reason)) throw MissingFileError(path);
  file_error(path, "a readable file", std::strerror(reason), "check its path and its permissions");
}

void throw_file_error(const std::string& path, int reason, const std::string& cause) {
  if (says_missing(reason)) throw MissingFileError(path, cause);
  throw FileError(path, cause);
}

}  // namespace bilevel
