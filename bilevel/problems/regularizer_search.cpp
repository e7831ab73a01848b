#include "bilevel/problems/regularizer_search.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/problems/linear_scores.h"
#include "bilevel/problems/softmax_loss.h"

namespace bilevel {
namespace {

SetScores scores_of(const LabelledRows& rows, const Tensor& matrix) {
  const Tensor scores = linear_scores(rows.features, {}, matrix.detach());
  return {.loss = mean_cross_entropy(scores, rows.labels).item<double>(),
          .accuracy = accuracy_percent(scores, rows.labels)};
}

}  // namespace

RegularizerSearch::RegularizerSearch(RegularizerSets sets, double rate)
    : RegularizedSoftmax(sets.train, sets.valid, sets.classes), sets_(std::move(sets)), rate_(rate) {
  if (!(rate >= 0) || !std::isfinite(rate)) {
    throw std::invalid_argument(fmt::format(
        "inner_rate = {}: must be finite and above 0, or 0 for one from the data's curvature", rate));
  }
  if (sets_.test) sets_.test->validate(sets_.classes, "test");
  curvature_ =
      largest_gram_eigenvalue(train().features) / static_cast<double>(train().size() * sets_.classes);
  if (!(curvature_ > 0)) {
    throw std::invalid_argument("every training feature is zero: there is nothing to learn from");
  }
  const double first_ridge = 2 / static_cast<double>(layout().size());  // at x = 0
  if (rate == 0) rate_ = std::min(0.2 / curvature_, largest_rate_curvature / (curvature_ + 10 * first_ridge));
  const double room = largest_rate_curvature / rate_ - curvature_;
  largest_outer_ = std::log(std::max(room / first_ridge, 1.0));
}

void RegularizerSearch::project_outer_(Tensor& x) const { x = x.clamp_max(largest_outer_); }

std::map<std::string, double> RegularizerSearch::metrics(const Tensor& w, const Tensor& /*x*/) const {
  const Tensor matrix = layout().matrix(w);
  std::map<std::string, double> result;
  const auto add = [&](const char* set, const LabelledRows& rows) {
    const SetScores scores = scores_of(rows, matrix);
    result[std::string(set) + "_loss"] = scores.loss;
    result[std::string(set) + "_accuracy"] = scores.accuracy;
  };
  add("train", train());
  add("valid", valid());
  if (sets_.test) add("test", *sets_.test);
  return result;
}

}  // namespace bilevel
