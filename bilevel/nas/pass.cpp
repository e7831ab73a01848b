#include "bilevel/nas/pass.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/nas/batch_norm.h"
#include "bilevel/nas/convolution.h"

namespace bilevel::nas {
namespace {

int64_t pooled(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation = 1) {
  const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;  // division rounds towards 0: -1 / 2 + 1 would be a pixel
}

Feature resized(const Feature& x, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation = 1) {
  const Feature y{{},
                  x.channels,
                  pooled(x.height, kernel, stride, padding, dilation),
                  pooled(x.width, kernel, stride, padding, dilation)};
  if (y.height < 1 || y.width < 1) {
    throw OptionError(
        fmt::format("images are too small: a {} x {} window meets {} x {} pixels inside the network; give "
                    "larger images ({}) or fewer reductions",
                    kernel, kernel, x.height, x.width, named("image_size")));
  }
  return y;
}

}  // namespace

double fan_in_bound(int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); }

Tensor NetworkPlan::initial_weights(uint64_t seed, const at::TensorOptions& options) const {
  Random random(named_seed(seed, "weights"));
  std::vector<Tensor> parts;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t size = weights.entries()[i].size;
    const auto cpu = options.device(at::kCPU);
    parts.push_back(starts[i] > 0 ? random.uniform({size}, cpu).mul_(2).sub_(1).mul_(starts[i])
                                  : at::full({size}, 0 - starts[i], cpu));
  }
  return at::cat(parts).to(options.device());
}

Tensor NetworkPlan::initial_statistics(const at::TensorOptions& options) const {
  std::vector<Tensor> parts = {at::zeros({0}, options)};
  for (size_t i = 0; i < statistics.entries().size(); ++i) {
    parts.push_back(at::full({statistics.entries()[i].size}, i % 2 == 0 ? 0.0 : 1.0, options));
  }
  return at::cat(parts);
}

Tensor draw_kept(const NetworkPlan& plan, int64_t images, double probability, uint64_t seed,
                 const at::TensorOptions& tensors) {
  Random random(named_seed(seed, "drop path"));
  const double keep = 1 - probability;
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < plan.drop_paths; ++i) {
    rows.push_back(random.uniform({images}, tensors.device(at::kCPU)).lt(keep));
  }
  if (rows.empty()) return {};
  // Divided here and sent from memory that stays in its place: the host need not wait for the device.
  const Tensor kept = at::stack(rows).to(tensors.device(at::kCPU)).div_(keep);
  return tensors.device().is_cuda() ? kept.pin_memory().to(tensors.device(), /*non_blocking=*/true) : kept;
}

Pass::Pass(NetworkPlan& plan) : plan_(&plan) {}

Pass::Pass(const NetworkPlan& plan, const Tensor& w, PassOptions options)
    : options_(std::move(options)), weights_(plan.weights.split(w)) {
  if (options_.norm == Norm::batch) return;
  if (!options_.statistics.defined()) {
    throw std::invalid_argument("Pass: running statistics are missing; start with initial_statistics()");
  }
  statistics_ = plan.statistics.split(options_.statistics);
}

Pass::Pass(std::vector<Tensor> weights, std::vector<Tensor> statistics, PassOptions options)
    : options_(std::move(options)), weights_(std::move(weights)), statistics_(std::move(statistics)) {}

Tensor Pass::weight(const std::string& name, std::vector<int64_t> shape, double start) {
  if (computes()) return weights_.at(next_weight_++);
  plan_->weights.add(fmt::format("{}/{}.{}", part_, named_++, name), std::move(shape));
  plan_->starts.push_back(start);
  return {};
}

void Pass::add_multiply_adds(int64_t count) {
  if (!computes()) plan_->multiply_adds += count;
}

Feature Pass::convolve(const Feature& x, const Convolution& c) {
  const int64_t padding = c.padding < 0 ? c.dilation * (c.kernel - 1) / 2 : c.padding;
  Feature y = resized(x, c.kernel, c.stride, padding, c.dilation);
  y.channels = c.outputs;
  const int64_t inputs = x.channels / c.groups;
  const int64_t fan_in = inputs * c.kernel * c.kernel;
  const Tensor w = weight("convolution", {c.outputs, inputs, c.kernel, c.kernel}, fan_in_bound(fan_in));
  const Tensor b = c.bias ? weight("bias", {c.outputs}, fan_in_bound(fan_in)) : Tensor();
  add_multiply_adds(c.outputs * fan_in * y.height * y.width);
  if (computes()) {
    y.value = merged() && !b.defined()
                  ? convolution(
                        x.value, w,
                        {.stride = c.stride, .padding = padding, .dilation = c.dilation, .groups = c.groups})
                  : at::conv2d(x.value, w, b, c.stride, padding, c.dilation, c.groups);
  }
  return y;
}

Feature Pass::normalize(const Feature& x, bool affine, const Tensor& scale) {
  Feature y = x;
  Tensor gain = affine ? weight("scale", {x.channels}, -1) : scale;
  const Tensor shift = affine ? weight("shift", {x.channels}, 0) : Tensor();
  if (!computes()) {
    plan_->statistics.add(fmt::format("{}/{}.mean", part_, named_), {x.channels});
    plan_->statistics.add(fmt::format("{}/{}.variance", part_, named_++), {x.channels});
    return y;
  }
  if (merged() && options_.norm == Norm::batch && !options_.norms && can_normalize_batch(x.value)) {
    y.value = normalize_batch(x.value, gain, shift, norm_epsilon);
    return y;
  }
  Tensor mean, variance;
  if (options_.norm != Norm::batch) {
    mean = statistics_.at(next_statistic_++);
    variance = statistics_.at(next_statistic_++);
  }
  if (options_.norms && options_.norm != Norm::remembered) {
    BatchMoments seen;
    y.value = over_ranks(x.value, gain, shift, &seen);
    if (options_.norm == Norm::remember) {
      mean.mul_(1 - norm_momentum).add_(seen.mean, norm_momentum);
      const double unbiased = seen.count / std::max(1.0, seen.count - 1);
      variance.mul_(1 - norm_momentum).add_(seen.variance, norm_momentum * unbiased);
    }
    return y;
  }
  y.value = at::batch_norm(x.value, gain, shift, mean, variance, options_.norm != Norm::remembered,
                           norm_momentum, norm_epsilon, /*cudnn_enabled=*/true);
  return y;
}

Tensor Pass::over_ranks(const Tensor& x, const Tensor& scale, const Tensor& shift, BatchMoments* seen) const {
  return merged() && can_normalize_batch(x)
             ? normalize_batch(x, scale, shift, norm_epsilon, options_.norms, seen)
             : normalize_batch_by_operations(x, scale, shift, norm_epsilon, options_.norms, seen);
}

Tensor Pass::normalize_values(const Tensor& x, const Tensor& scale, const Tensor& shift) const {
  if (options_.norms) return over_ranks(x, scale, shift, nullptr);
  return at::batch_norm(x, scale, shift, {}, {}, /*training=*/true, norm_momentum, norm_epsilon,
                        /*cudnn_enabled=*/true);
}

Feature Pass::linear(const Feature& x, int64_t outputs) {
  const Tensor w = weight("linear", {outputs, x.channels}, fan_in_bound(x.channels));
  const Tensor b = weight("bias", {outputs}, fan_in_bound(x.channels));
  add_multiply_adds(outputs * x.channels);
  Feature y{{}, outputs, 1, 1};
  if (computes()) y.value = at::linear(x.value.flatten(1), w, b);
  return y;
}

Feature Pass::drop_path(const Feature& x) {
  if (!computes()) {
    ++plan_->drop_paths;
    return x;
  }
  if (!options_.kept.defined() || options_.norm == Norm::remembered) return x;
  return scale(x, options_.kept.select(0, next_drop_path_++).view({-1, 1, 1, 1}));
}

Feature relu(const Feature& x) {
  Feature y = x;
  if (x.value.defined()) y.value = at::relu(x.value);
  return y;
}

Tensor for_padded_pool(const Tensor& image, int64_t padding) {
  return padding > 0 && image.is_cuda() ? image.contiguous() : image;
}

Feature average_pool(const Feature& x, int64_t kernel, int64_t stride, int64_t padding, bool count_padding) {
  Feature y = resized(x, kernel, stride, padding);
  if (x.value.defined()) {
    y.value = at::avg_pool2d(for_padded_pool(x.value, padding), kernel, stride, padding, /*ceil_mode=*/false,
                             count_padding);
  }
  return y;
}

Feature average_pairs(const Feature& x) {
  Feature y{{}, x.channels, (x.height + 1) / 2, (x.width + 1) / 2};
  if (x.value.defined()) y.value = at::avg_pool2d(x.value, 2, 2, 0, /*ceil_mode=*/true);
  return y;
}

Feature max_pool(const Feature& x, int64_t kernel, int64_t stride, int64_t padding) {
  Feature y = resized(x, kernel, stride, padding);
  if (x.value.defined()) y.value = at::max_pool2d(x.value, kernel, stride, padding);
  return y;
}

Feature global_pool(const Feature& x) {
  Feature y{{}, x.channels, 1, 1};
  if (x.value.defined()) y.value = x.value.mean({2, 3}, /*keepdim=*/true);
  return y;
}

Feature add(const Feature& a, const Feature& b) {
  Feature y = a;
  if (a.value.defined()) y.value = a.value + b.value;
  return y;
}

Feature scale(const Feature& x, const Tensor& factor) {
  Feature y = x;
  if (x.value.defined()) y.value = x.value * factor;
  return y;
}

Feature concatenate(const std::vector<Feature>& features) {
  Feature y = features.at(0);
  y.channels = 0;
  std::vector<Tensor> values;
  for (const Feature& f : features) {
    y.channels += f.channels;
    if (f.value.defined()) values.push_back(f.value);
  }
  if (!values.empty()) y.value = at::cat(values, 1);
  return y;
}

Feature shift_by_one(const Feature& x) {
  // Of an odd size the shifted grid would be a row shorter than the other one: it gets a row of zeros.
  const int64_t down = x.height % 2, right = x.width % 2;
  Feature y = x;
  y.height += down - 1;
  y.width += right - 1;
  if (!x.value.defined()) return y;
  y.value = x.value.slice(2, 1).slice(3, 1);
  if (down + right > 0) y.value = at::constant_pad_nd(y.value, {0, right, 0, down});
  return y;
}

Feature zeros_like(const Feature& x, int64_t stride) {
  Feature y{{}, x.channels, (x.height + stride - 1) / stride, (x.width + stride - 1) / stride};
  if (!x.value.defined()) return y;
  // Like a part of x, not of a size that was read off it: a trace of the network takes any number of images.
  const Tensor part =
      stride == 1 ? x.value : x.value.slice(2, 0, c10::nullopt, stride).slice(3, 0, c10::nullopt, stride);
  y.value = at::zeros_like(part, {}, at::MemoryFormat::Contiguous);
  return y;
}

}  // namespace bilevel::nas
