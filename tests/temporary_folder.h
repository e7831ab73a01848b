#pragma once
// A folder of its own for one test, removed at the end with all that is in it.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace bilevel::test {

// A file, with the folders above it; returns its path.
inline std::string put(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = std::filesystem::temp_directory_path() / "bilevel-test-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make the folder " + path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string at(std::string_view name) const { return *this / name; }
  // Makes the folders on the way too.
  std::string put(std::string_view name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    std::ofstream(at(name), std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return at(name);
  }

 private:
  std::string path_;
};

}  // namespace bilevel::test
