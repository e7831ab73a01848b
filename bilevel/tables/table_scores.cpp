#include "bilevel/tables/table_scores.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "bilevel/tables/scaled_table.h"

namespace bilevel {

Tensor table_scores(const Features& rows, const Tensor& weights) {
  return TableScale({rows}, false).scaled(rows).mm(weights);
}

TableScores score_table(const Features& rows, const Tensor& labels, const Tensor& weights) {
  const Tensor scores = table_scores(rows, weights);
  const Tensor losses = -scores.log_softmax(1).gather(1, labels.unsqueeze(1));
  return {.accuracy = 100 * scores.argmax(1).eq(labels).to(at::kDouble).mean().item<double>(),
          .loss = losses.mean().item<double>()};
}

NumberScores score_numbers(const Features& rows, const Tensor& targets, const Tensor& weights) {
  const double loss = (table_scores(rows, weights).squeeze(1) - targets).square().mean().item<double>();
  const double variance = (targets - targets.mean()).square().mean().item<double>();
  return {.loss = loss,
          .rmse = std::sqrt(loss),
          .determination = variance > 0 ? 1 - loss / variance : std::numeric_limits<double>::quiet_NaN()};
}

}  // namespace bilevel
