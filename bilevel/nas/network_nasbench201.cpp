// A NAS-Bench-201 cell in its network.

#include <vector>

#include "bilevel/nas/network.h"
#include "bilevel/nas/operations.h"
#include "bilevel/nas/skeleton201.h"

namespace bilevel::nas {
namespace {

Feature cell(Pass& pass, const CellGenotype& genotype, const Feature& input) {
  std::vector<Feature> vertices = {input};
  for (const GenotypeNode& node : genotype.nodes) {
    Feature sum;
    bool begun = false;
    for (const GenotypeInput& from : node.inputs) {
      if (from.operation == "none") continue;
      const Feature term = apply_operation(pass, from.operation, vertices[static_cast<size_t>(from.from)], 1);
      sum = begun ? add(sum, term) : term;
      begun = true;
    }
    vertices.push_back(begun ? sum : zeros_like(input, 1));
  }
  return vertices.back();
}

}  // namespace

Feature walk_network201(Pass& pass, const Genotype& genotype, const NetworkOptions& options,
                        const Feature& images) {
  return walk_skeleton201(pass,
                          {.channels = options.channels, .cells = options.cells, .classes = options.classes},
                          images, [&](const Feature& x) { return cell(pass, genotype.cells.at(0), x); });
}

}  // namespace bilevel::nas
