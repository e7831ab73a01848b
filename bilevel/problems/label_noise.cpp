#include "bilevel/problems/label_noise.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

namespace bilevel {

NoisyLabels replace_labels(const Tensor& clean, int64_t classes, double probability, Random& random) {
  if (!(probability >= 0 && probability <= 1)) {
    throw std::invalid_argument(fmt::format("label noise = {}: must be a probability, 0 to 1", probability));
  }
  NoisyLabels noisy;
  noisy.labels = clean.clone();
  noisy.replaced = at::zeros_like(clean, clean.options().dtype(at::kBool));
  int64_t* labels = noisy.labels.data_ptr<int64_t>();
  bool* replaced = noisy.replaced.data_ptr<bool>();
  for (int64_t i = 0; i < clean.numel(); ++i) {
    // Both are drawn for every example, so that a larger probability replaces more of the same labels.
    const double uniform = random.uniform();
    const int64_t other = random.below(classes);
    if (uniform < probability) {
      labels[i] = other;
      replaced[i] = true;
    }
  }
  noisy.wrong = noisy.labels.ne(clean);
  return noisy;
}

double f1_score(const Tensor& flagged, const Tensor& truth) {
  const auto both = static_cast<double>(flagged.logical_and(truth).sum().item<int64_t>());
  const auto either = static_cast<double>(flagged.sum().item<int64_t>() + truth.sum().item<int64_t>());
  return either > 0 ? 2 * both / either : 0;
}

void add_flag_scores(const Tensor& x, const Tensor& replaced, const Tensor& wrong,
                     std::map<std::string, double>& metrics) {
  if (!replaced.defined()) return;
  const Tensor flagged = x.detach().lt(flag_below);
  metrics["f1_replaced"] = f1_score(flagged, replaced);
  metrics["f1_wrong"] = f1_score(flagged, wrong);
}

}  // namespace bilevel
