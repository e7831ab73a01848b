#pragma once
// The folder of --out, made before the work so that one that cannot be had costs nothing, and gone again,
// with those above it that were made for it, where the work fails.

#include <string>
#include <vector>

namespace bilevel::cli {

class OutFolder {
 public:
  explicit OutFolder(std::string folder);  // empty = none
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;
  ~OutFolder();
  void keep() { kept_ = true; }

 private:
  std::string folder_;
  std::vector<std::string> made_;  // deepest first
  bool kept_ = false;
};

}  // namespace bilevel::cli
