#include "bilevel/data/folder.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "bilevel/data/file_error.h"

namespace bilevel {

bool is_folder(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(::opendir(folder.c_str()), ::closedir);
  if (!handle) {
    const int reason = errno;
    throw_file_error(
        folder, reason,
        fmt::format("expected a folder that can be read, found {}; check the path", std::strerror(reason)));
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(handle.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace bilevel
