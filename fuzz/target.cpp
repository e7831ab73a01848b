#include "fuzz/target.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>

namespace bilevel::fuzz {
namespace {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("bilevel-fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::logic_error("memfd_create fails");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }
  void hold(std::string_view bytes) const {
    const auto size = static_cast<ssize_t>(bytes.size());
    if (::ftruncate(descriptor_, size) != 0 || ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != size) {
      throw std::logic_error("a file in memory cannot be written");
    }
  }

 private:
  int descriptor_;
};

// A folder with one symbolic link to a file in memory.
class LinkFolder {
 public:
  explicit LinkFolder(const std::string& name) {
    const char* base = std::getenv("TMPDIR");
    path_ = fmt::format("{}/bilevel-fuzz.XXXXXX", base != nullptr ? base : "/tmp");
    if (::mkdtemp(path_.data()) == nullptr) throw std::logic_error("mkdtemp fails");
    link_ = path_ + "/" + name;
    if (::symlink(file_.path().c_str(), link_.c_str()) != 0) throw std::logic_error("symlink fails");
  }
  ~LinkFolder() {
    ::unlink(link_.c_str());
    ::rmdir(path_.c_str());
  }
  LinkFolder(const LinkFolder&) = delete;
  LinkFolder& operator=(const LinkFolder&) = delete;

  const std::string& path() const { return path_; }
  void hold(std::string_view bytes) const { file_.hold(bytes); }

 private:
  MemoryFile file_;
  std::string path_, link_;
};

}  // namespace

std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}

std::string path_of(std::string_view bytes, size_t slot) {
  static std::array<MemoryFile, 2> files;
  files.at(slot).hold(bytes);
  return files.at(slot).path();
}

std::string folder_of(std::string_view bytes, const std::string& name) {
  static std::map<std::string, LinkFolder> folders;
  const LinkFolder& folder = folders.try_emplace(name, name).first->second;
  folder.hold(bytes);
  return folder.path();
}

}  // namespace bilevel::fuzz
