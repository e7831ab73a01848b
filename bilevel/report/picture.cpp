#include "bilevel/report/picture.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/process.h"
#include "bilevel/data/temporary_folder.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"

namespace bilevel {
namespace {

constexpr int64_t largest_drawing = int64_t{1} << 28;

}  // namespace

bool can_draw() { return run_process({"dot", "-V"}, ".").found; }

std::string picture_of(const std::string& graph, const std::string& format) {
  const TemporaryFolder folder("bilevel-draw");
  write_file(folder.at("genotype.dot"), graph);
  const ProcessResult result =
      run_process({"dot", "-T" + format, "genotype.dot", "-o", "picture"}, folder.path());
  if (!result.found) {
    throw RunError(
        fmt::format("draw: graphviz's program dot is not installed: install it (Debian: apt-get install "
                    "graphviz), or give {} a name that ends in .dot for the graph as text",
                    named("out")));
  }
  if (!result.succeeded()) {
    throw std::runtime_error(fmt::format("draw: dot ended with status {}: {}", result.status,
                                         result.output_tail.empty() ? "no message" : result.output_tail));
  }
  return read_file(folder.at("picture"), largest_drawing);
}

}  // namespace bilevel
