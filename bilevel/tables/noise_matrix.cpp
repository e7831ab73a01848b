#include "bilevel/tables/noise_matrix.h"

#include <ATen/ATen.h>

#include <limits>
#include <vector>

#include "bilevel/tables/softmax_fit.h"

namespace bilevel {
namespace {

constexpr int64_t most_em_steps = 60;
constexpr double em_tolerance = 1e-3;
constexpr double strengths[] = {1, 3, 10, 30, 100, 1000};

Tensor with_diagonal(const Tensor& noise, double least) {
  const Tensor right = noise.diagonal(), raised = right.clamp_min(least);
  const Tensor others = ((1 - raised) / (1 - right).clamp_min(1e-300)).unsqueeze(1) * noise;
  return others.diagonal_scatter(raised);
}

}  // namespace

Tensor even_noise(int64_t classes, double share) {
  Tensor noise = at::full({classes, classes}, share / static_cast<double>(classes - 1), at::kDouble);
  return noise.fill_diagonal_(1 - share);
}

Tensor true_label_posterior(const NoiseEvidence& evidence, const Tensor& noise) {
  const Tensor joint = evidence.probabilities * noise.t().index_select(0, evidence.given);
  return joint / joint.sum(1, true).clamp_min(1e-300);
}

Tensor given_label_losses(const NoiseEvidence& evidence, const Tensor& noise) {
  const Tensor joint = evidence.probabilities * noise.t().index_select(0, evidence.given);
  return joint.sum(1).clamp_min(1e-300).log().neg();
}

Tensor estimate_noise(const NoiseEvidence& evidence, const Tensor& start, double strength,
                      double least_right) {
  const int64_t classes = start.size(0);
  const Tensor given = label_matrix(evidence.given, classes);
  const auto rows = static_cast<double>(evidence.given.numel());
  Tensor noise = start;
  for (int64_t step = 0; step < most_em_steps; ++step) {
    const Tensor counts = true_label_posterior(evidence, noise).t().mm(given);
    const double wrong = rows - counts.trace().item<double>();
    const double share = (wrong + 1) / (rows + static_cast<double>(classes) + 1);
    const Tensor weighted = counts + strength * even_noise(classes, share);
    const Tensor next = with_diagonal(weighted / weighted.sum(1, true), least_right);
    const double change = (next - noise).abs().max().item<double>();
    noise = next;
    if (change < em_tolerance) break;
  }
  return noise;
}

NoiseStrength choose_noise_strength(const NoiseEvidence& evidence, const Tensor& start, const Tensor& fold,
                                    int64_t folds, double least_right) {
  struct Part {
    NoiseEvidence others, held_out;
  };
  std::vector<Part> parts;
  for (int64_t k = 0; k < folds; ++k) {
    const auto rows = [&](const Tensor& mask) {
      const Tensor index = mask.nonzero().squeeze(1);
      return NoiseEvidence{evidence.probabilities.index_select(0, index),
                           evidence.given.index_select(0, index)};
    };
    parts.push_back({rows(fold.ne(k)), rows(fold.eq(k))});
  }
  NoiseStrength best{.loss = std::numeric_limits<double>::infinity()};
  for (const double strength : strengths) {
    double loss = 0;
    for (const Part& part : parts) {
      const Tensor noise = estimate_noise(part.others, start, strength, least_right);
      loss += given_label_losses(part.held_out, noise).sum().item<double>();
    }
    if (loss < best.loss) best = {.strength = strength, .loss = loss};
  }
  return best;
}

}  // namespace bilevel
