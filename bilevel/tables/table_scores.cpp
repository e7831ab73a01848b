#include "bilevel/tables/table_scores.h"

#include <ATen/ATen.h>

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

}  // namespace bilevel
