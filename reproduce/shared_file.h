#pragma once
// Where the tables of trained cells and the published split of CIFAR-10 lie, for the items that know them by
// name.

#include <filesystem>
#include <string>

namespace bilevel::reproduce {

// The file in the folder that the user gave, or in the folder beside this one; empty where it is in neither.
inline std::string shared_file(const std::string& folder, const std::string& name) {
  for (const std::filesystem::path& place :
       {std::filesystem::path(folder), std::filesystem::path("../shared/data")}) {
    if (!place.empty() && std::filesystem::is_regular_file(place / name)) return place / name;
  }
  return {};
}

}  // namespace bilevel::reproduce
