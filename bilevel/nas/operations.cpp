#include "bilevel/nas/operations.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/nas/box_pool.h"
#include "bilevel/nas/convolution.h"

namespace bilevel::nas {
namespace {

struct Convolved {
  int64_t kernel = 0, dilation = 1;
  bool separable = false, twice = false;  // depthwise then pointwise; that two times over
};

// What an operation's name means where it is a convolution.
std::optional<Convolved> convolution_of(const std::string& operation) {
  if (operation == "nor_conv_1x1") return Convolved{.kernel = 1};
  if (operation == "nor_conv_3x3") return Convolved{.kernel = 3};
  if (operation == "sep_conv_3x3") return Convolved{.kernel = 3, .separable = true, .twice = true};
  if (operation == "sep_conv_5x5") return Convolved{.kernel = 5, .separable = true, .twice = true};
  if (operation == "dil_conv_3x3") return Convolved{.kernel = 3, .dilation = 2, .separable = true};
  if (operation == "dil_conv_5x5") return Convolved{.kernel = 5, .dilation = 2, .separable = true};
  return std::nullopt;
}

std::optional<Feature> pool_of(const Pass& pass, const std::string& operation, const Feature& x,
                               int64_t stride) {
  if (operation == "avg_pool_3x3") {
    if (!pass.merged() || stride != 1 || !x.value.defined() || !can_box_pool(x.value)) {
      return average_pool(x, 3, stride, 1, /*count_padding=*/false);
    }
    Feature y = x;
    y.value = box_pool(x.value);
    return y;
  }
  if (operation == "max_pool_3x3") return max_pool(x, 3, stride, 1);
  return std::nullopt;
}

[[noreturn]] void unknown(const std::string& operation) {
  refuse_unknown("operation", operation,
                 {"none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3", "max_pool_3x3",
                  "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"});
}

// Parallel copies in flight: one feature with the copies' channels side by side (merged), or one each
// (plain).
struct Copies {
  std::vector<Feature> parts;
  int64_t count = 1;
  bool shared = false;  // all copies read the one part
};

Copies convolve(Pass& pass, const Copies& x, const Convolution& c) {
  const Feature& first = x.parts.at(0);
  const int64_t inputs = (pass.merged() && !x.shared ? first.channels / x.count : first.channels);
  const int64_t fan_in = inputs / c.groups * c.kernel * c.kernel;
  const int64_t padding = c.dilation * (c.kernel - 1) / 2;
  const Tensor w = pass.weight("convolution", {x.count * c.outputs, inputs / c.groups, c.kernel, c.kernel},
                               fan_in_bound(fan_in));
  Feature shape = first;
  shape.height = (first.height + c.stride - 1) / c.stride;
  shape.width = (first.width + c.stride - 1) / c.stride;
  shape.value = Tensor();
  Copies y{.parts = {}, .count = x.count};
  pass.add_multiply_adds(x.count * c.outputs * fan_in * shape.height * shape.width);
  if (pass.merged()) {
    shape.channels = x.count * c.outputs;
    if (pass.computes()) {
      // A dense convolution of a shared input needs no copies of it; groups do.
      const bool dense = x.shared && c.groups == 1;
      const Tensor input =
          x.shared && !dense && x.count > 1 ? first.value.repeat({1, x.count, 1, 1}) : first.value;
      shape.value = convolution(input, w,
                                {.stride = c.stride,
                                 .padding = padding,
                                 .dilation = c.dilation,
                                 .groups = dense ? 1 : x.count * c.groups});
    }
    y.parts = {shape};
    return y;
  }
  shape.channels = c.outputs;
  for (int64_t d = 0; d < x.count; ++d) {
    if (pass.computes()) {
      shape.value =
          at::conv2d(x.parts[x.shared ? 0 : static_cast<size_t>(d)].value,
                     w.narrow(0, d * c.outputs, c.outputs), {}, c.stride, padding, c.dilation, c.groups);
    }
    y.parts.push_back(shape);
  }
  return y;
}

Copies relu(const Copies& x) {
  Copies y = x;
  for (Feature& part : y.parts) part = relu(part);
  return y;
}

// A scale per copy (undefined = one) folds into the norm where copies are merged.
Copies normalize(Pass& pass, const Copies& x, const Tensor& scales) {
  Copies y = x;
  if (!pass.computes()) return y;
  for (size_t p = 0; p < y.parts.size(); ++p) {
    Feature& part = y.parts[p];
    Tensor per_channel;
    if (scales.defined() && pass.merged()) {
      per_channel = scales.unsqueeze(1).expand({x.count, part.channels / x.count}).reshape(-1);
    }
    part = pass.normalize(part, false, per_channel);
    if (scales.defined() && !pass.merged()) part = scale(part, scales.select(0, static_cast<int64_t>(p)));
  }
  return y;
}

Copies convolution_copies(Pass& pass, const Copies& rectified, int64_t channels, int64_t stride,
                          const Convolved& kind, const Tensor& scales) {
  if (!kind.separable) {
    return normalize(
        pass, convolve(pass, rectified, {.outputs = channels, .kernel = kind.kernel, .stride = stride}),
        scales);
  }
  const auto separable = [&](const Copies& x, int64_t step) {
    const Copies depthwise = convolve(pass, x,
                                      {.outputs = channels,
                                       .kernel = kind.kernel,
                                       .stride = step,
                                       .dilation = kind.dilation,
                                       .groups = channels});
    return convolve(pass, depthwise, {.outputs = channels, .kernel = 1});
  };
  const Copies once = separable(rectified, stride);
  if (!kind.twice) return normalize(pass, once, scales);
  return normalize(pass, separable(relu(normalize(pass, once, {})), 1), scales);
}

Copies reduce_copies(Pass& pass, const Copies& rectified, int64_t channels, const Tensor& scales) {
  const Convolution half{.outputs = channels / 2, .kernel = 1, .stride = 2};
  Copies shifted = rectified;
  for (Feature& part : shifted.parts) part = shift_by_one(part);
  const Copies a = convolve(pass, rectified, half);
  const Copies b = convolve(pass, shifted, half);
  Copies y{.parts = {}, .count = rectified.count};
  for (size_t p = 0; p < a.parts.size(); ++p) {
    Feature both = a.parts[p];
    both.channels *= 2;
    if (pass.computes()) {
      const int64_t copies = pass.merged() ? y.count : 1;
      const auto apart = [&](const Tensor& t) { return t.unflatten(1, {copies, channels / 2}); };
      both.value = at::cat({apart(a.parts[p].value), apart(b.parts[p].value)}, 2).flatten(1, 2);
    }
    y.parts.push_back(both);
  }
  return normalize(pass, y, scales);
}

}  // namespace

Feature relu_convolve_normalize(Pass& pass, const Feature& x, const Convolution& c, bool affine) {
  return pass.normalize(pass.convolve(relu(x), c), affine);
}

Feature convolve_normalize_relu(Pass& pass, const Feature& x, const Convolution& c, bool affine) {
  return relu(pass.normalize(pass.convolve(x, c), affine));
}

Feature factorized_reduce(Pass& pass, const Feature& x, int64_t outputs, bool affine) {
  const Feature rectified = relu(x);
  const Feature a = pass.convolve(rectified, {.outputs = outputs / 2, .kernel = 1, .stride = 2});
  const Feature b =
      pass.convolve(shift_by_one(rectified), {.outputs = outputs - outputs / 2, .kernel = 1, .stride = 2});
  return pass.normalize(concatenate({a, b}), affine);
}

Feature apply_operation(Pass& pass, const std::string& operation, const Feature& x, int64_t stride) {
  const int64_t channels = x.channels;
  if (operation == "none") return zeros_like(x, stride);
  if (operation == "skip_connect") return stride == 1 ? x : factorized_reduce(pass, x, channels, true);
  if (const auto pool = pool_of(pass, operation, x, stride)) return *pool;
  const auto kind = convolution_of(operation);
  if (!kind) unknown(operation);
  if (!kind->separable) {
    return relu_convolve_normalize(pass, x, {.outputs = channels, .kernel = kind->kernel, .stride = stride},
                                   true);
  }
  Feature y = x;
  for (int64_t round = 0; round < (kind->twice ? 2 : 1); ++round) {
    y = pass.convolve(relu(y), {.outputs = channels,
                                .kernel = kind->kernel,
                                .stride = round == 0 ? stride : 1,
                                .dilation = kind->dilation,
                                .groups = channels});
    y = pass.normalize(pass.convolve(y, {.outputs = channels, .kernel = 1}), true);
  }
  return y;
}

std::vector<Feature> mixed_edges(Pass& pass, const Feature& x, const MixedEdges& edges,
                                 const Tensor& weights) {
  const int64_t channels = x.channels;
  const Copies rectified{.parts = {relu(x)}, .count = edges.copies, .shared = true};
  std::vector<Copies> own;                                // with the mixture's weights inside
  std::vector<std::pair<Feature, Tensor>> computed_once;  // with one weight per edge
  for (size_t o = 0; o < edges.operations.size(); ++o) {
    const std::string& operation = edges.operations[o];
    const Tensor scales = pass.computes() ? weights.select(1, static_cast<int64_t>(o)) : Tensor();
    if (operation == "none") continue;
    if (operation == "skip_connect" && edges.stride == 1) {
      computed_once.emplace_back(x, scales);
    } else if (operation == "skip_connect") {
      own.push_back(reduce_copies(pass, rectified, channels, scales));
    } else if (const auto pool = pool_of(pass, operation, x, edges.stride)) {
      computed_once.emplace_back(edges.norm_pools ? pass.normalize(*pool, false) : *pool, scales);
    } else if (const auto kind = convolution_of(operation)) {
      own.push_back(convolution_copies(pass, rectified, channels, edges.stride, *kind, scales));
    } else {
      unknown(operation);
    }
  }

  Feature shape = zeros_like({{}, channels, x.height, x.width}, edges.stride);
  std::vector<Feature> mixed(static_cast<size_t>(edges.copies), shape);
  if (!pass.computes()) return mixed;
  if (!pass.merged()) {
    for (size_t d = 0; d < mixed.size(); ++d) {
      Tensor sum = at::zeros({x.value.size(0), channels, shape.height, shape.width}, x.value.options());
      for (const auto& [feature, scales] : computed_once) {
        sum = sum + feature.value * scales.select(0, static_cast<int64_t>(d));
      }
      for (const Copies& copies : own) sum = sum + copies.parts[d].value;
      mixed[d].value = sum;
    }
    return mixed;
  }
  Tensor sum;  // images x copies x channels x height x width
  const auto accumulate = [&](const Tensor& term) { sum = sum.defined() ? sum + term : term; };
  for (const Copies& copies : own) accumulate(copies.parts[0].value.unflatten(1, {edges.copies, channels}));
  for (const auto& [feature, scales] : computed_once) {
    const Tensor factor = scales.view({1, edges.copies, 1, 1, 1});
    sum = sum.defined() ? at::addcmul(sum, feature.value.unsqueeze(1), factor)
                        : feature.value.unsqueeze(1) * factor;
  }
  if (!sum.defined()) {
    sum = at::zeros({x.value.size(0), edges.copies, channels, shape.height, shape.width}, x.value.options());
  }
  const std::vector<Tensor> parts = sum.unbind(1);
  for (size_t d = 0; d < mixed.size(); ++d) mixed[d].value = parts[d];
  return mixed;
}

}  // namespace bilevel::nas
