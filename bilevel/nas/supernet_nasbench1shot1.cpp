// NAS-Bench-1Shot1's search network (Zela, Siems and Hutter 2020): operations sit on nodes, and a node
// chooses among its predecessors; the cell's input reaches every node and the output through a 1 x 1
// projection.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <vector>

#include "bilevel/nas/guards/partial_channels.h"
#include "bilevel/nas/operations.h"
#include "bilevel/nas/supernet.h"

namespace bilevel::nas {
namespace {

Feature mixed_operation(Pass& pass, const std::vector<std::string>& operations, const Feature& x,
                        const Tensor& weights) {
  Feature sum = x;
  bool begun = false;
  for (size_t o = 0; o < operations.size(); ++o) {
    const int64_t kernel = operations[o] == "conv3x3-bn-relu" ? 3 : 1;
    Feature term = operations[o] == "maxpool3x3"
                       ? max_pool(x, 3, 1, 1)
                       : convolve_normalize_relu(pass, x, {.outputs = x.channels, .kernel = kernel});
    if (pass.computes()) term = scale(term, weights.select(0, static_cast<int64_t>(o)));
    sum = begun ? add(sum, term) : term;
    begun = true;
  }
  return sum;
}

// The projections to the nodes and to the output read the same feature: one convolution, or one each.
std::vector<Feature> projections(Pass& pass, const Feature& input, int64_t channels, int64_t nodes) {
  const int64_t all = 2 * nodes * channels;
  const Tensor w = pass.weight("projections", {all, input.channels, 1, 1}, fan_in_bound(input.channels));
  const Tensor gain = pass.weight("scale", {all}, -1), shift = pass.weight("shift", {all}, 0);
  pass.add_multiply_adds(all * input.channels * input.height * input.width);
  std::vector<int64_t> sizes(static_cast<size_t>(nodes), channels);
  sizes.push_back(nodes * channels);
  std::vector<Feature> projected;
  for (const int64_t size : sizes) projected.push_back({{}, size, input.height, input.width});
  if (!pass.computes()) return projected;
  const auto project = [&](int64_t begin, int64_t size) {
    return at::relu(pass.normalize_values(at::conv2d(input.value, w.narrow(0, begin, size)),
                                          gain.narrow(0, begin, size), shift.narrow(0, begin, size)));
  };
  if (pass.merged()) {
    const std::vector<Tensor> parts = project(0, all).split_with_sizes(sizes, 1);
    for (size_t i = 0; i < parts.size(); ++i) projected[i].value = parts[i];
    return projected;
  }
  int64_t begin = 0;
  for (Feature& part : projected) {
    part.value = project(begin, part.channels);
    begin += part.channels;
  }
  return projected;
}

Feature mixed_cell(Pass& pass, const SearchSpace& space, const SupernetOptions& options, const Feature& input,
                   int64_t channels, const Tensor& mixture) {
  const std::vector<Feature> projected = projections(pass, input, channels, space.nodes);
  const auto weights = [&](const std::string& block) {
    return pass.computes() ? space.block(mixture, block) : Tensor();
  };
  const Tensor operations = weights("operations");
  std::vector<Feature> nodes;
  for (int64_t j = 1; j <= space.nodes; ++j) {
    const std::string block = fmt::format("parents-{}", j);
    const bool chosen = space.has_block(block);
    const Tensor parents = chosen ? weights(block) : Tensor();
    Feature sum = projected[static_cast<size_t>(j) - 1];
    if (pass.computes() && chosen) sum = scale(sum, parents.select(0, 0).select(0, 0));
    for (size_t i = 0; i < nodes.size(); ++i) {
      Feature term = nodes[i];
      if (pass.computes() && chosen)
        term = scale(term, parents.select(0, 0).select(0, static_cast<int64_t>(i) + 1));
      sum = add(sum, term);
    }
    const SplitChannels split(sum, options.partial);
    nodes.push_back(split.joined(mixed_operation(pass, space.operations, split.active(),
                                                 pass.computes() ? operations.select(0, j - 1) : Tensor())));
  }
  if (pass.computes()) {
    const Tensor output = weights("output").select(0, 0);
    for (size_t i = 0; i < nodes.size(); ++i) {
      nodes[i] = scale(nodes[i], output.select(0, static_cast<int64_t>(i) + 1));
    }
    return add(scale(projected.back(), output.select(0, 0)), concatenate(nodes));
  }
  return concatenate(nodes);
}

}  // namespace

Feature walk_nasbench1shot1(Pass& pass, const SearchSpace& space, const SupernetOptions& options,
                            const Feature& images, const Tensor& mixture) {
  const std::set<int64_t> halved = reduction_cells(options.cells);
  pass.enter("stem");
  int64_t channels = options.channels;
  Feature x = convolve_normalize_relu(pass, images, {.outputs = channels});
  for (int64_t c = 0; c < options.cells; ++c) {
    pass.enter(fmt::format("cell {}", c + 1));
    if (halved.count(c) > 0) {
      channels *= 2;
      x = max_pool(x, 2, 2, 1);
    }
    x = mixed_cell(pass, space, options, x, channels, mixture);
  }
  pass.enter("head");
  return pass.linear(global_pool(relu_convolve_normalize(pass, x, {.outputs = channels, .kernel = 1}, false)),
                     options.classes);
}

}  // namespace bilevel::nas
