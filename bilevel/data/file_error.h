#pragma once
// How every reader says that a file is wrong: the file, where in it, what was expected, what was found, and a
// way out.

#include <cstdint>
#include <string>
#include <string_view>

namespace bilevel {

// std::runtime_error "PATH: byte OFFSET: expected ..., found ...; HINT". For a compressed file the offset
// counts its content.
[[noreturn]] void byte_error(const std::string& path, int64_t offset, std::string_view expected,
                             std::string_view found, std::string_view hint);

// The same for text; lines count from 1, and 0 stands for the file as a whole.
[[noreturn]] void line_error(const std::string& path, int64_t line, std::string_view expected,
                             std::string_view found, std::string_view hint);

// The same for a file or a folder as a whole, or for a member of an archive.
[[noreturn]] void file_error(std::string_view path, std::string_view expected, std::string_view found,
                             std::string_view hint);

}  // namespace bilevel
