// NAS-Bench-201's search network (Dong and Yang 2020): every node sends its mixture to all later ones.

#include <ATen/ATen.h>

#include <vector>

#include "bilevel/nas/guards/partial_channels.h"
#include "bilevel/nas/operations.h"
#include "bilevel/nas/skeleton201.h"
#include "bilevel/nas/supernet.h"

namespace bilevel::nas {
namespace {

int64_t nasbench201_edge(int64_t from, int64_t to) { return to * (to - 1) / 2 + from; }

Feature mixed_cell(Pass& pass, const SearchSpace& space, const SupernetOptions& options, const Feature& input,
                   const Tensor& mixture) {
  const Tensor weights = pass.computes() ? space.block(mixture, "edges") : Tensor();
  const int64_t last = space.nodes;
  std::vector<Feature> nodes = {input};
  std::vector<Feature> sums(static_cast<size_t>(last) + 1, input);  // for their shape
  std::vector<bool> begun(static_cast<size_t>(last) + 1, false);
  for (int64_t from = 0; from < last; ++from) {
    std::vector<int64_t> rows;
    for (int64_t to = from + 1; to <= last; ++to) rows.push_back(nasbench201_edge(from, to));
    Tensor of_edges;
    if (pass.computes()) {
      std::vector<Tensor> picked;
      for (const int64_t row : rows) picked.push_back(weights.select(0, row));
      of_edges = at::stack(picked);
    }
    const MixedEdges edges{.operations = space.operations, .copies = last - from};
    const std::vector<Feature> sent = partial_edges(pass, nodes.back(), edges, of_edges, options.partial);
    for (int64_t to = from + 1; to <= last; ++to) {
      Feature& sum = sums[static_cast<size_t>(to)];
      const Feature term =
          by_input_share(pass, space, mixture, "edges", to, from, sent[static_cast<size_t>(to - from - 1)]);
      sum = begun[static_cast<size_t>(to)] ? add(sum, term) : term;
      begun[static_cast<size_t>(to)] = true;
    }
    nodes.push_back(sums[static_cast<size_t>(from) + 1]);
  }
  return nodes.back();
}

}  // namespace

Feature walk_nasbench201(Pass& pass, const SearchSpace& space, const SupernetOptions& options,
                         const Feature& images, const Tensor& mixture) {
  return walk_skeleton201(
      pass, {.channels = options.channels, .cells = options.cells, .classes = options.classes}, images,
      [&](const Feature& x) { return mixed_cell(pass, space, options, x, mixture); });
}

}  // namespace bilevel::nas
