#include "bilevel/meta/sinusoids.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "bilevel/core/random.h"

namespace bilevel::meta {
namespace {

void require_at_least(const char* name, double value, double least) {
  if (!std::isfinite(value) || value < least) {
    throw std::invalid_argument(
        fmt::format("sinusoids: {} = {}: must be finite and at least {}", name, value, least));
  }
}

}  // namespace

void SinusoidsOptions::validate() const {
  require_at_least("smallest_amplitude", smallest_amplitude, 0);
  require_at_least("largest_amplitude", largest_amplitude, smallest_amplitude);
  require_at_least("largest_phase", largest_phase, 0);
  require_at_least("noise", noise, 0);
  if (!std::isfinite(reach) || reach <= 0) {
    throw std::invalid_argument(fmt::format("sinusoids: reach = {}: must be finite and above 0", reach));
  }
}

Sinusoids::Sinusoids(const TaskShape& shape, const SinusoidsOptions& options, uint64_t seed,
                     const at::TensorOptions& tensors)
    : shape_(shape), options_(options), seed_(named_seed(seed, "sinusoids")), tensors_(tensors) {
  shape_.validate();
  options_.validate();
}

TaskBatch Sinusoids::tasks(Part part, int64_t first, int64_t count) const {
  require_task_numbers(first, count);
  const auto doubles = at::TensorOptions().dtype(at::kDouble).device(at::kCPU);
  const SinusoidsOptions& o = options_;
  std::vector<Tensor> train_inputs, train_targets, valid_inputs, valid_targets;
  for (int64_t number = first; number < first + count; ++number) {
    Random random = task_stream(seed_, part, number);
    const double amplitude =
        o.smallest_amplitude + (o.largest_amplitude - o.smallest_amplitude) * random.uniform();
    const double phase = o.largest_phase * random.uniform();
    const Tensor train = (random.uniform({shape_.shots, 1}, doubles) * 2 - 1) * o.reach;
    const Tensor valid = (random.uniform({shape_.queries, 1}, doubles) * 2 - 1) * o.reach;
    const Tensor errors = random.normal({shape_.shots, 1}, doubles) * o.noise;
    train_inputs.push_back(train);
    train_targets.push_back((train + phase).sin() * amplitude + errors);
    valid_inputs.push_back(valid);
    valid_targets.push_back((valid + phase).sin() * amplitude);
  }
  return {at::stack(train_inputs).to(tensors_), at::stack(train_targets).to(tensors_),
          at::stack(valid_inputs).to(tensors_), at::stack(valid_targets).to(tensors_)};
}

}  // namespace bilevel::meta
