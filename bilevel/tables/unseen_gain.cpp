#include "bilevel/tables/unseen_gain.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/tables/folds.h"

namespace bilevel {
namespace {

constexpr double errors_to_gain = 2;
constexpr int64_t nested_folds = 5;
constexpr int64_t most_weights = 20'000'000;  // of the bootstrap, all draws together

}  // namespace

bool Gain::clear() const { return mean > errors_to_gain * error; }

Gain gain_of(const Tensor& gains) {
  const auto count = static_cast<double>(gains.numel());
  return {.mean = gains.mean().item<double>(),
          .error = count > 1 ? gains.std().item<double>() / std::sqrt(count)
                             : std::numeric_limits<double>::infinity()};
}

Gain gain_on_unseen_rows(const Tensor& strata, int64_t count, uint64_t seed,
                         const std::function<Tensor(const Tensor& unseen)>& gains) {
  Random random(named_seed(seed, "nested folds"));
  const Tensor part = stratified_folds(strata, count, nested_folds, random);
  std::vector<Tensor> all;
  Gain gain;
  for (int64_t k = 0; k < nested_folds; ++k) {
    const Tensor unseen = part.eq(k).nonzero().squeeze(1);
    if (unseen.numel() == 0) continue;
    const Tensor here = gains(unseen);
    if (!here.defined()) continue;
    all.push_back(here);
    gain = gain_of(at::cat(all));
    const double more = std::sqrt(static_cast<double>(nested_folds) / static_cast<double>(k + 1));
    if (!(gain.mean * more > gain.error)) break;
  }
  return gain;
}

Tensor bootstrap_shares(int64_t rows, uint64_t seed,
                        const std::function<Tensor(const Tensor& weights)>& log_likelihood) {
  Random random(named_seed(seed, "shares"));
  const int64_t draws = std::clamp<int64_t>(most_weights / rows, 20, 200);
  Tensor shares;
  for (int64_t draw = 0; draw < draws; ++draw) {
    const Tensor raw =
        random.uniform({rows}, at::TensorOptions().dtype(at::kDouble)).clamp_min(1e-300).log().neg();
    const Tensor of_draw = log_likelihood(raw / raw.sum() * static_cast<double>(rows)).softmax(0);
    shares = shares.defined() ? shares + of_draw : of_draw;
  }
  return shares / static_cast<double>(draws);
}

}  // namespace bilevel
