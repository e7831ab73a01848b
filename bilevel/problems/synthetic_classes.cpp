#include "bilevel/problems/synthetic_classes.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"

namespace bilevel {

LabelledExamples LabelledExamples::to(const at::TensorOptions& options) const {
  return {features.to(options), labels.to(options.device())};
}

void GaussianClassesOptions::validate() const {
  require_at_least("classes", classes, 2);
  require_at_least("features", features, 1);
  require_nonnegative("separation", separation);
}

LabelledExamples draw_gaussian_classes(const GaussianClassesOptions& options, int64_t count, uint64_t seed,
                                       const char* name) {
  options.validate();
  if (count < options.classes) {
    throw std::invalid_argument(
        fmt::format("{} examples: must be at least one per class, {}", count, options.classes));
  }
  const auto cpu = at::TensorOptions().dtype(at::kDouble);
  Random mean_stream(named_seed(seed, "class-means"));
  const Tensor means = mean_stream.normal({options.classes, options.features}, cpu) * options.separation;
  const Tensor labels = at::arange(count, cpu.dtype(at::kLong)).remainder(options.classes);
  Random stream(named_seed(seed, name));
  Tensor features = means.index_select(0, labels) + stream.normal({count, options.features}, cpu);
  if (options.unit_rows) features = features / features.norm(2, {1}, /*keepdim=*/true);
  return {features, labels};
}

}  // namespace bilevel
