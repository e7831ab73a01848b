#include "bilevel/jobs/learn_baseline.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "bilevel/meta/task_loss.h"
#include "bilevel/tables/softmax_fit.h"

namespace bilevel {
namespace {

constexpr double raw_penalties[] = {10, 1, 0.1, 0.01};
constexpr double raw_tolerance = 1e-4;
constexpr int64_t most_penalty_tasks = 20;  // a few decide one number

meta::TaskScore score_raw(const meta::TaskSource& source, meta::Part part, int64_t count, double penalty) {
  std::vector<double> accuracies, losses;
  for (int64_t i = 0; i < count; ++i) {
    const meta::TaskBatch task = source.tasks(part, i, 1);
    const auto flat = [](const Tensor& inputs) { return inputs[0].to(at::kCPU, at::kDouble).flatten(1); };
    const Tensor targets = task.valid_targets.to(at::kCPU);
    const Tensor scores = raw_input_outputs(flat(task.train_inputs), task.train_targets[0].to(at::kCPU),
                                            flat(task.valid_inputs), source.outputs(), penalty)
                              .unsqueeze(0);
    accuracies.push_back(meta::task_accuracies(scores, targets).item<double>());
    losses.push_back(meta::task_losses(scores, targets).item<double>());
  }
  const auto interval = [&](const Tensor& values) {
    return count > 1 ? 1.96 * values.std().item<double>() / std::sqrt(static_cast<double>(count))
                     : std::numeric_limits<double>::quiet_NaN();
  };
  const Tensor a = at::tensor(accuracies, at::kDouble), l = at::tensor(losses, at::kDouble);
  return {.accuracy = a.mean().item<double>(),
          .accuracy_interval = interval(a),
          .loss = l.mean().item<double>(),
          .loss_interval = interval(l),
          .tasks = count};
}

}  // namespace

// Rows are moved and scaled by the task's training examples, all by
// one number. With more pixels than examples the fit lies in the span of the rows: solved in coordinates of
// an orthonormal basis of it, the answer is the same and the work is small.
Tensor raw_input_outputs(const Tensor& train, const Tensor& labels, const Tensor& valid, int64_t ways,
                         double penalty) {
  const Tensor mean = train.mean(0);
  const Tensor centred = train - mean;
  const double square = centred.square().sum(1).mean().item<double>();
  const double scale = square > 0 ? 1 / std::sqrt(square) : 1;
  Tensor rows = centred * scale, others = (valid - mean) * scale;
  if (rows.size(1) > rows.size(0)) {
    const Tensor basis = std::get<0>(at::linalg_qr(rows.t()));
    rows = rows.mm(basis);
    others = others.mm(basis);
  }
  const auto with_ones = [](const Tensor& values) {
    return at::cat({values, at::ones({values.size(0), 1}, values.options())}, 1);
  };
  rows = with_ones(rows);
  const Tensor logarithms = at::full({rows.size(1) - 1}, std::log(penalty), at::kDouble);
  const SoftmaxFit fit = fit_softmax(rows, {label_matrix(labels, ways)}, penalties(logarithms, rows.size(0)),
                                     at::zeros({rows.size(1), ways}, at::kDouble), raw_tolerance);
  return with_ones(others).mm(fit.weights);
}

RawInputBaseline raw_input_baseline(const meta::TaskSource& source, int64_t valid_tasks, int64_t test_tasks) {
  RawInputBaseline best;
  double best_accuracy = -1;
  for (const double penalty : raw_penalties) {
    const meta::TaskScore valid =
        score_raw(source, meta::Part::valid, std::min(valid_tasks, most_penalty_tasks), penalty);
    if (valid.accuracy > best_accuracy) {
      best_accuracy = valid.accuracy;
      best.penalty = penalty;
    }
  }
  best.valid = score_raw(source, meta::Part::valid, valid_tasks, best.penalty);
  best.test = score_raw(source, meta::Part::test, test_tasks, best.penalty);
  return best;
}

}  // namespace bilevel
