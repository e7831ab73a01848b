#include "cli/out_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "bilevel/data/write_file.h"

namespace bilevel::cli {
namespace {

bool exists(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

}  // namespace

OutFolder::OutFolder(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  for (std::string part = folder_; !part.empty() && !exists(part);) {
    made_.push_back(part);
    const size_t slash = part.rfind('/');
    part.resize(slash == std::string::npos ? 0 : slash);
  }
  make_folder(folder_, "--out");
}

OutFolder::~OutFolder() {
  if (kept_) return;
  for (const std::string& part : made_) ::rmdir(part.c_str());  // refuses what is not empty
}

}  // namespace bilevel::cli
