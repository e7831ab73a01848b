#include "bilevel/data/write_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "bilevel/data/file_error.h"

namespace bilevel {

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  static std::atomic<uint64_t> serial{0};
  const std::string beside = fmt::format("{}.tmp-{}-{}", path, ::getpid(), serial++);
  const auto fail = [&](std::string_view what) {
    const int reason = errno;
    std::remove(beside.c_str());
    throw_file_error(
        path, reason,
        fmt::format("cannot {}: {}; does the folder exist, and is there room?", what, std::strerror(reason)));
  };
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  if (!file) fail("create " + beside);
  write(file);
  file.close();
  if (!file) fail("write " + beside);
  if (std::rename(beside.c_str(), path.c_str()) != 0) fail("rename " + beside);
}

void write_file(const std::string& path, std::string_view content) {
  write_file(path, [content](std::ostream& out) { out << content; });
}

// mkdir, not std::filesystem: LibTorch 2's wheels export parts of an older libstdc++'s that clash with ours.
void make_folder(const std::string& folder) {
  for (size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    const std::string part = folder.substr(0, end);
    struct ::stat status {};
    if (::mkdir(part.c_str(), 0777) != 0 &&
        (errno != EEXIST || ::stat(part.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))) {
      throw FileError(folder, fmt::format("cannot create the folder {}: {}", part,
                                          errno == EEXIST ? "a file is in its place" : std::strerror(errno)));
    }
    if (end == std::string::npos) return;
  }
}

}  // namespace bilevel
