#pragma once
// How every reader says that a file is wrong: the file, where in it, what was expected, what was found, and a
// way out.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace bilevel {

// What is wrong with a file or a folder. what() is "PATH: CAUSE"; the two apart are for whoever names the
// path in another way.
class FileError : public std::runtime_error {
 public:
  FileError(const std::string& path, const std::string& cause);
  const std::string& path() const { return path_; }
  const std::string& cause() const { return cause_; }

 private:
  std::string path_, cause_;
};

// There is none at this path. The program adds the option that named it.
class MissingFileError : public FileError {
 public:
  using FileError::FileError;
  explicit MissingFileError(const std::string& path);  // "PATH: there is no such file; check the path"
};

// FileError "PATH: byte OFFSET: expected ..., found ...; HINT". For a compressed file the offset counts its
// content.
[[noreturn]] void byte_error(const std::string& path, int64_t offset, std::string_view expected,
                             std::string_view found, std::string_view hint);

// The same for text; lines count from 1, and 0 stands for the file as a whole.
[[noreturn]] void line_error(const std::string& path, int64_t line, std::string_view expected,
                             std::string_view found, std::string_view hint);

// The same for a file or a folder as a whole, or for a member of an archive.
[[noreturn]] void file_error(std::string_view path, std::string_view expected, std::string_view found,
                             std::string_view hint);

// Throws for a path that stat(2) has refused: it is missing, or errno has another reason.
[[noreturn]] void no_file_error(const std::string& path);

// MissingFileError where `reason`, an errno, says that there is no such file or folder, else FileError.
[[noreturn]] void throw_file_error(const std::string& path, int reason, const std::string& cause);

}  // namespace bilevel
