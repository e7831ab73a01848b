#include "bilevel/tables/noise_matrix.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace bilevel {
namespace {

constexpr int64_t most_em_steps = 60;
constexpr double em_tolerance = 1e-3;
constexpr double strengths[] = {1, 3, 10, 30, 100, 1000};

// Rows add up to 1; a diagonal below `least` is raised to it, and what stands beside it makes room.
void normalise(std::vector<double>& noise, size_t classes, double least) {
  for (size_t k = 0; k < classes; ++k) {
    double* row = noise.data() + k * classes;
    const double sum = std::accumulate(row, row + classes, 0.0);
    for (size_t l = 0; l < classes; ++l) row[l] /= sum;
    if (row[k] >= least) continue;
    const double others = (1 - least) / std::max(1 - row[k], 1e-300);
    for (size_t l = 0; l < classes; ++l) row[l] *= others;
    row[k] = least;
  }
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
  const auto classes = static_cast<size_t>(start.size(0));
  const auto rows = static_cast<size_t>(evidence.given.numel());
  const Tensor probabilities = evidence.probabilities.contiguous(), given = evidence.given.contiguous();
  const double* const p = probabilities.data_ptr<double>();
  const int64_t* const label = given.data_ptr<int64_t>();
  const Tensor first = start.contiguous();
  std::vector<double> noise(first.data_ptr<double>(), first.data_ptr<double>() + classes * classes);
  std::vector<double> next(noise.size()), joint(classes);
  // A step reads each row a few times: loops over plain numbers, because tensors of this size cost more to
  // make than to compute, and the folds and strengths of a path take thousands of steps.
  for (int64_t step = 0; step < most_em_steps; ++step) {
    std::fill(next.begin(), next.end(), 0.0);
    for (size_t i = 0; i < rows; ++i) {
      const auto l = static_cast<size_t>(label[i]);
      double sum = 0;
      for (size_t k = 0; k < classes; ++k) sum += joint[k] = p[i * classes + k] * noise[k * classes + l];
      sum = std::max(sum, 1e-300);
      for (size_t k = 0; k < classes; ++k) next[k * classes + l] += joint[k] / sum;
    }
    double right = 0;
    for (size_t k = 0; k < classes; ++k) right += next[k * classes + k];
    const auto count = static_cast<double>(rows), types = static_cast<double>(classes);
    const double share = (count - right + 1) / (count + types + 1);
    for (size_t k = 0; k < classes; ++k) {
      for (size_t l = 0; l < classes; ++l) {
        next[k * classes + l] += strength * (k == l ? 1 - share : share / (types - 1));
      }
    }
    normalise(next, classes, least_right);
    double change = 0;
    for (size_t j = 0; j < noise.size(); ++j) change = std::max(change, std::abs(next[j] - noise[j]));
    noise.swap(next);
    if (change < em_tolerance) break;
  }
  return at::tensor(noise, at::kDouble).view(start.sizes());
}

NoiseStrength choose_noise_strength(const NoiseEvidence& evidence, const Tensor& start, const Tensor& fold,
                                    int64_t folds, double least_right) {
  struct Part {
    NoiseEvidence others, held_out;
    Tensor held_out_rows;
  };
  std::vector<Part> parts;
  for (int64_t k = 0; k < folds; ++k) {
    const auto at_rows = [&](const Tensor& index) {
      return NoiseEvidence{evidence.probabilities.index_select(0, index),
                           evidence.given.index_select(0, index)};
    };
    const Tensor held_out = fold.eq(k).nonzero().squeeze(1);
    parts.push_back({at_rows(fold.ne(k).nonzero().squeeze(1)), at_rows(held_out), held_out});
  }
  NoiseStrength best;
  best.loss = std::numeric_limits<double>::infinity();
  for (const double strength : strengths) {
    const Tensor losses = at::zeros({evidence.given.numel()}, at::kDouble);
    for (const Part& part : parts) {
      const Tensor noise = estimate_noise(part.others, start, strength, least_right);
      losses.index_put_({part.held_out_rows}, given_label_losses(part.held_out, noise));
    }
    const double loss = losses.sum().item<double>();
    if (loss < best.loss) best = {.strength = strength, .loss = loss, .losses = losses};
  }
  return best;
}

}  // namespace bilevel
