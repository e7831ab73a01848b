#pragma once
// Where 20 Newsgroups lies, for the commands that know it by name.

#include <filesystem>
#include <stdexcept>
#include <string>

namespace bilevel::cli {

// What the user gave, or the archive in the folder beside this one. Throws std::invalid_argument that says
// how to get the posts.
inline std::string newsgroups_path(const std::string& given) {
  if (!given.empty()) return given;
  const std::string usual = "../shared/data/20news-bydate.tar.xz";
  if (std::filesystem::exists(usual)) return usual;
  throw std::invalid_argument(
      "20 Newsgroups is not here: fetch http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz and give "
      "--data-dir its folder or the archive itself (plain, .gz or .xz)");
}

}  // namespace bilevel::cli
