// The search network of DARTS (Liu, Simonyan and Yang 2019): cells with two inputs, normal ones and
// reductions.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "bilevel/nas/guards/partial_channels.h"
#include "bilevel/nas/operations.h"
#include "bilevel/nas/supernet.h"

namespace bilevel::nas {
namespace {

// Edges are listed node by node, the edges of node i from the vertices 0 .. i+1.
int64_t edge(int64_t from, int64_t node) { return node * (node + 3) / 2 + from; }

struct CellInputs {
  Feature before_last, last;
};

Feature mixed_cell(Pass& pass, const SearchSpace& space, const SupernetOptions& options,
                   const CellInputs& inputs, int64_t channels, bool reduce, const Tensor& mixture) {
  const std::string cell = reduce ? "reduce" : "normal";
  const Tensor weights = pass.computes() ? space.block(mixture, cell) : Tensor();
  // What comes from before a reduction is twice as large as what comes after it.
  const bool larger = inputs.before_last.height != inputs.last.height;
  const Convolution adapt{.outputs = channels, .kernel = 1};
  std::vector<Feature> vertices = {larger ? factorized_reduce(pass, inputs.before_last, channels, false)
                                          : relu_convolve_normalize(pass, inputs.before_last, adapt, false),
                                   relu_convolve_normalize(pass, inputs.last, adapt, false)};
  std::vector<Feature> sums(static_cast<size_t>(space.nodes));
  std::vector<bool> begun(sums.size(), false);
  for (int64_t from = 0; from < space.nodes + 1; ++from) {
    if (from >= 2) vertices.push_back(sums[static_cast<size_t>(from) - 2]);
    const int64_t first = from < 2 ? 0 : from - 1;  // the first node that comes after it
    MixedEdges edges{.operations = space.operations, .copies = space.nodes - first};
    edges.stride = reduce && from < 2 ? 2 : 1;
    edges.norm_pools = true;
    Tensor of_edges;
    if (pass.computes()) {
      std::vector<Tensor> picked;
      for (int64_t node = first; node < space.nodes; ++node)
        picked.push_back(weights.select(0, edge(from, node)));
      of_edges = at::stack(picked);
    }
    const std::vector<Feature> sent =
        partial_edges(pass, vertices[static_cast<size_t>(from)], edges, of_edges, options.partial);
    for (int64_t node = first; node < space.nodes; ++node) {
      const auto n = static_cast<size_t>(node);
      const Feature term =
          by_input_share(pass, space, mixture, cell, node + 1, from, sent[static_cast<size_t>(node - first)]);
      sums[n] = begun[n] ? add(sums[n], term) : term;
      begun[n] = true;
    }
  }
  return concatenate(sums);
}

}  // namespace

Feature walk_darts(Pass& pass, const SearchSpace& space, const SupernetOptions& options,
                   const Feature& images, const Tensor& mixture) {
  constexpr int64_t stem_multiplier = 3;
  const std::set<int64_t> reductions = reduction_cells(options.cells);
  pass.enter("stem");
  const Feature stem =
      pass.normalize(pass.convolve(images, {.outputs = stem_multiplier * options.channels}), true);
  CellInputs inputs{stem, stem};
  int64_t channels = options.channels;
  for (int64_t c = 0; c < options.cells; ++c) {
    pass.enter(fmt::format("cell {}", c + 1));
    const bool reduce = reductions.count(c) > 0;
    if (reduce) channels *= 2;
    const Feature output = mixed_cell(pass, space, options, inputs, channels, reduce, mixture);
    inputs = {inputs.last, output};
  }
  pass.enter("head");
  return pass.linear(global_pool(inputs.last), options.classes);
}

}  // namespace bilevel::nas
