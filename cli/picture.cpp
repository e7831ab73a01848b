#include "cli/picture.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/process.h"
#include "bilevel/data/write_file.h"

namespace bilevel::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t largest_picture = int64_t{1} << 28;

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fs::temp_directory_path() / "bilevel-draw-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder " + path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace

bool can_draw() { return run_process({"dot", "-V"}, ".").found; }

std::string picture_of(const std::string& graph, const std::string& format) {
  const TemporaryFolder folder;
  write_file(folder.at("genotype.dot"), graph);
  const ProcessResult result =
      run_process({"dot", "-T" + format, "genotype.dot", "-o", "picture"}, folder.path());
  if (!result.found) {
    throw std::runtime_error(
        "draw: graphviz's program dot is not here: install it (Debian: apt-get install graphviz), or give "
        "--out a name that ends in .dot for the graph as text");
  }
  if (!result.succeeded()) {
    throw std::runtime_error(fmt::format("draw: dot ended with status {}: {}", result.status,
                                         result.output_tail.empty() ? "no message" : result.output_tail));
  }
  return read_file(folder.at("picture"), largest_picture);
}

}  // namespace bilevel::cli
