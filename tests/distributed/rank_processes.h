#pragma once
// The ranks that `bilevel launch` has started, as processes.

#include <sys/types.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/distributed/ranks.h"

#define NEEDS_PROGRAM() \
  BILEVEL_NEEDS_GLOO(); \
  if (std::getenv("BILEVEL_PROGRAM") == nullptr) GTEST_SKIP() << "built without the program"

namespace bilevel::test {

inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const size_t bracket = text.rfind(')');
    if (bracket == std::string::npos) continue;
    pid_t above = 0;
    if (std::sscanf(text.c_str() + bracket + 4, "%d", &above) == 1 && above == parent)
      found.push_back(std::stoi(name));
  }
  return found;
}
// The rank of a process, from its environment.
inline int rank_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ");
  for (std::string word; std::getline(file, word, '\0');) {
    if (word.starts_with("RANK=")) return std::stoi(word.substr(5));
  }
  return -1;
}
// Of a launcher; 0 where it has none (yet).
inline pid_t process_of_rank(pid_t launcher, int rank) {
  for (const pid_t child : children_of(launcher)) {
    if (rank_of(child) == rank) return child;
  }
  return 0;
}

}  // namespace bilevel::test
