#include "bilevel/nas/guards/partial_channels.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "bilevel/fields/option_text.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {
namespace {

// Windows side by side; an odd last row or column stands alone, as in operations with a stride of 2.
Feature halved(const Feature& x) {
  Feature y{{}, x.channels, (x.height + 1) / 2, (x.width + 1) / 2};
  if (x.value.defined()) {
    y.value = at::max_pool2d(x.value, /*kernel_size=*/2, /*stride=*/2, /*padding=*/0, /*dilation=*/1,
                             /*ceil_mode=*/true);
  }
  return y;
}

// K groups of channels become groups with one channel of each.
Feature shuffled(const Feature& x, int64_t groups) {
  Feature y = x;
  if (x.value.defined())
    y.value = x.value.unflatten(1, {groups, x.channels / groups}).transpose(1, 2).flatten(1, 2);
  return y;
}

Feature channels_of(const Feature& x, int64_t begin, int64_t count) {
  Feature y = x;
  y.channels = count;
  if (x.value.defined()) y.value = x.value.narrow(1, begin, count);
  return y;
}

}  // namespace

PartialChannels::PartialChannels(const Problem& engine, const SupernetProblem& supernet, double strength)
    : Guard(engine), strength_(strength) {
  const int64_t wanted = GuardOptions{"partial-channels", strength}.partial();
  const int64_t laid_out = supernet.supernet().options().partial;
  if (laid_out == wanted) return;
  throw OptionError(
      fmt::format("{}: the supernet sends one channel in {} through its operations, the strength asks for "
                  "one in {}; lay it "
                  "out with SupernetOptions::partial = {}",
                  named("guard", "partial-channels"), laid_out, wanted, wanted));
}

SplitChannels::SplitChannels(const Feature& x, int64_t partial) : partial_(partial), active_(x) {
  if (partial == 1) return;
  const int64_t count = x.channels / partial;
  active_ = channels_of(x, 0, count);
  others_ = channels_of(x, count, x.channels - count);
}

Feature SplitChannels::joined(const Feature& y) const {
  if (partial_ == 1) return y;
  const bool smaller = y.height != others_.height || y.width != others_.width;
  return shuffled(concatenate({y, smaller ? halved(others_) : others_}), partial_);
}

std::vector<Feature> partial_edges(Pass& pass, const Feature& x, const MixedEdges& edges,
                                   const Tensor& weights, int64_t partial) {
  const SplitChannels split(x, partial);
  std::vector<Feature> sent = mixed_edges(pass, split.active(), edges, weights);
  for (Feature& term : sent) term = split.joined(term);
  return sent;
}

Feature by_input_share(const Pass& pass, const SearchSpace& space, const Tensor& mixture,
                       std::string_view cell, int64_t node, int64_t input, const Feature& x) {
  const std::string name = input_shares_name(cell, node);
  if (!pass.computes() || !space.has_block(name)) return x;
  return scale(x, space.block(mixture, name).select(0, 0).select(0, input));
}

}  // namespace bilevel::nas
