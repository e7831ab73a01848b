#include "bilevel/nas/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/nas/network_nasbench101.h"

namespace bilevel::nas {
namespace {

struct Defaults {
  int64_t channels, cells;
};

Defaults defaults_of(SpaceKind kind, bool imagenet) {
  switch (kind) {
    case SpaceKind::nasbench201:
      return {16, 5};
    case SpaceKind::nasbench1shot1:
      return {128, 9};
    case SpaceKind::darts:
      return imagenet ? Defaults{48, 14} : Defaults{36, 20};
  }
  return {};
}

}  // namespace

NetworkOptions NetworkOptions::completed(SpaceKind kind) const {
  const Defaults defaults = defaults_of(kind, imagenet_stem);
  NetworkOptions complete = *this;
  if (channels == 0) complete.channels = defaults.channels;
  if (cells == 0) complete.cells = defaults.cells;
  return complete;
}

void NetworkOptions::validate(SpaceKind kind) const {
  require(channels >= 1, "channels", channels, "at least 1");
  require(kind != SpaceKind::darts || channels % 2 == 0, "channels", channels,
          "even, because the DARTS space halves channels");
  require(cells >= 1 && cells <= 1000, "cells", cells, "1 to 1000");
  require(input_channels >= 1, "input channels", input_channels, "at least 1");
  require(height >= 1 && width >= 1, "image_size", std::min(height, width), "at least 1");
  require(classes >= 2, "classes", classes, "at least 2");
  if ((imagenet_stem || auxiliary) && kind != SpaceKind::darts) {
    throw OptionError(fmt::format("{}: only the DARTS space has it; leave it out",
                                  named(imagenet_stem ? "imagenet" : "auxiliary")));
  }
}

Network::Network(const SearchSpace& space, Genotype genotype, NetworkOptions options)
    : kind_(space.kind), genotype_(std::move(genotype)), options_(options.completed(kind_)) {
  options_.validate(kind_);
  validate_genotype(space, genotype_);
  if (kind_ == SpaceKind::nasbench1shot1) cell101_ = pruned(graph101(space, genotype_));
  const Feature images{{}, options_.input_channels, options_.height, options_.width};
  Pass pass(plan_);
  walk(pass, images);
  if (!options_.auxiliary) return;
  NetworkOptions alone = options_;
  alone.auxiliary = false;
  const Network without(space, genotype_, alone);
  auxiliary_parameters_ = plan_.parameters() - without.plan_.parameters();
  auxiliary_multiply_adds_ = plan_.multiply_adds - without.plan_.multiply_adds;
}

NetworkOutput Network::walk(Pass& pass, const Feature& images) const {
  switch (kind_) {
    case SpaceKind::nasbench201:
      return {walk_network201(pass, genotype_, options_, images).value, {}};
    case SpaceKind::nasbench1shot1:
      return {walk_network101(pass, cell101_, options_, images).value, {}};
    case SpaceKind::darts: {
      const DartsOutput output = walk_network_darts(pass, genotype_, options_, images);
      return {output.logits.value, output.auxiliary.value};
    }
  }
  throw std::logic_error("Network: a space of unknown kind");
}

NetworkOutput Network::forward(const Tensor& w, const Tensor& images, const PassOptions& pass_options) const {
  Pass pass(plan_, w, pass_options);
  return walk(pass, {images, options_.input_channels, options_.height, options_.width});
}

Tensor Network::tested(std::vector<Tensor> weights, std::vector<Tensor> statistics,
                       const Tensor& images) const {
  Pass pass(std::move(weights), std::move(statistics), {.norm = Norm::remembered, .merged = false});
  return walk(pass, {images, options_.input_channels, options_.height, options_.width}).logits;
}

}  // namespace bilevel::nas
