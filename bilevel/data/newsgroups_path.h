#pragma once
// Where 20 Newsgroups lies, for the commands that know it by name.

#include <filesystem>
#include <stdexcept>
#include <string>

namespace bilevel {

// What the user gave, or the archive in the folder that the user gave, or in the folder beside this one.
// Throws std::invalid_argument that says how to get the posts.
inline std::string newsgroups_path(const std::string& given) {
  const std::filesystem::path folder(given.empty() ? "../shared/data" : given);
  for (const char* archive : {"20news-bydate.tar.xz", "20news-bydate.tar.gz"}) {
    if (std::filesystem::exists(folder / archive)) return folder / archive;
  }
  if (!given.empty()) return given;
  throw std::invalid_argument(
      "20 Newsgroups was not found: fetch http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz and give "
      "its folder or the archive itself (plain, .gz or .xz) with --data-dir");
}

}  // namespace bilevel
