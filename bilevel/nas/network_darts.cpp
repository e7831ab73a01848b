// DARTS cells in the networks that the paper evaluates: for CIFAR, and for ImageNet (three halvings first).

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "bilevel/nas/network.h"
#include "bilevel/nas/operations.h"
#include "bilevel/nas/supernet.h"

namespace bilevel::nas {
namespace {

struct NetworkCellInputs {
  Feature before_last, last;
};

Feature cell(Pass& pass, const CellGenotype& genotype, const NetworkCellInputs& inputs, int64_t channels,
             bool reduce) {
  const bool larger = inputs.before_last.height != inputs.last.height;
  const Convolution adapt{.outputs = channels, .kernel = 1};
  std::vector<Feature> vertices = {larger ? factorized_reduce(pass, inputs.before_last, channels, true)
                                          : relu_convolve_normalize(pass, inputs.before_last, adapt, true),
                                   relu_convolve_normalize(pass, inputs.last, adapt, true)};
  for (const GenotypeNode& node : genotype.nodes) {
    std::vector<Feature> terms;
    for (const GenotypeInput& from : node.inputs) {
      const int64_t stride = reduce && from.from < 2 ? 2 : 1;
      Feature term = apply_operation(pass, from.operation, vertices[static_cast<size_t>(from.from)], stride);
      const bool identity = from.operation == "skip_connect" && stride == 1;
      terms.push_back(identity ? term : pass.drop_path(term));
    }
    vertices.push_back(add(terms.at(0), terms.at(1)));
  }
  return concatenate({vertices.begin() + 2, vertices.end()});
}

// Szegedy et al.'s second head as DARTS has it: at 8 x 8 on CIFAR, at 14 x 14 on ImageNet.
Feature auxiliary_head(Pass& pass, const Feature& x, int64_t classes, bool imagenet) {
  const int64_t window = std::min<int64_t>(5, std::min(x.height, x.width));
  Feature y = average_pool(relu(x), window, imagenet ? 2 : 3, 0, false);
  y = relu(pass.normalize(pass.convolve(y, {.outputs = 128, .kernel = 1}), true));
  const int64_t kernel = std::min<int64_t>(2, std::min(y.height, y.width));
  y = pass.convolve(y, {.outputs = 768, .kernel = kernel, .padding = 0});
  // DARTS's ImageNet head has no norm here, by an oversight that its published results were made with.
  y = relu(imagenet ? y : pass.normalize(y, true));
  return pass.linear(global_pool(y), classes);
}

NetworkCellInputs cifar_stem(Pass& pass, const Feature& images, int64_t channels) {
  const Feature stem = pass.normalize(pass.convolve(images, {.outputs = 3 * channels}), true);
  return {stem, stem};
}

NetworkCellInputs imagenet_stem(Pass& pass, const Feature& images, int64_t channels) {
  const Feature first = convolve_normalize_relu(pass, images, {.outputs = channels / 2, .stride = 2});
  const Feature second = pass.normalize(pass.convolve(first, {.outputs = channels, .stride = 2}), true);
  const Feature third = relu_convolve_normalize(pass, second, {.outputs = channels, .stride = 2}, true);
  return {second, third};
}

}  // namespace

DartsOutput walk_network_darts(Pass& pass, const Genotype& genotype, const NetworkOptions& options,
                               const Feature& images) {
  const std::set<int64_t> reductions = reduction_cells(options.cells);
  pass.enter("stem");
  NetworkCellInputs inputs = options.imagenet_stem ? imagenet_stem(pass, images, options.channels)
                                                   : cifar_stem(pass, images, options.channels);
  int64_t channels = options.channels;
  DartsOutput output;
  for (int64_t c = 0; c < options.cells; ++c) {
    pass.enter(fmt::format("cell {}", c + 1));
    const bool reduce = reductions.count(c) > 0;
    if (reduce) channels *= 2;
    inputs = {inputs.last, cell(pass, genotype.cells.at(reduce ? 1 : 0), inputs, channels, reduce)};
    if (options.auxiliary && c == 2 * options.cells / 3) {
      pass.enter("second head");
      output.auxiliary = auxiliary_head(pass, inputs.last, options.classes, options.imagenet_stem);
    }
  }
  pass.enter("head");
  output.logits = pass.linear(global_pool(inputs.last), options.classes);
  return output;
}

}  // namespace bilevel::nas
