#include "bilevel/meta/sinusoids.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"

namespace bilevel::meta {
namespace {}  // namespace

void SinusoidsOptions::validate() const {
  require_nonnegative("sinusoids: smallest_amplitude", smallest_amplitude);
  require(largest_amplitude >= smallest_amplitude && std::isfinite(largest_amplitude),
          "sinusoids: largest_amplitude", largest_amplitude,
          fmt::format("finite and at least {}", smallest_amplitude));
  require_nonnegative("sinusoids: largest_phase", largest_phase);
  require_nonnegative("sinusoids: noise", noise);
  require_positive("sinusoids: reach", reach);
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
