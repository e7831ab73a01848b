#include "bilevel/tables/held_out_tasks.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>

#include "bilevel/tables/softmax_fit.h"

namespace bilevel {
namespace {

CoupledRows coupled(const TaskRows& rows) {
  return {rows.scaled, label_matrix(rows.labels, rows.classes), rows.task, rows.tasks};
}

// folds x rows: 1 where a fold does not hold the row out.
Tensor chosen_rows(const TaskRows& rows) {
  const Tensor folds = at::arange(rows.folds, at::kLong).unsqueeze(1);
  return folds.ne(rows.fold.unsqueeze(0)).to(at::kDouble);
}

}  // namespace

TaskRows TaskRows::subset(const Tensor& index) const {
  TaskRows part = *this;
  for (Tensor* values : {&part.scaled, &part.labels, &part.task, &part.fold}) {
    *values = values->index_select(0, index);
  }
  return part;
}

TaskRows TaskRows::fitted() const { return folds == 1 ? subset(fold.lt(0).nonzero().squeeze(1)) : *this; }

HeldOutTasks::HeldOutTasks(const TaskRows& rows)
    : rows_(rows),
      index_(rows.fold.ge(0).nonzero().squeeze(1)),
      fold_(rows.fold.index_select(0, index_)),
      targets_(label_matrix(rows.labels.index_select(0, index_), rows.classes)),
      fit_(coupled(rows), chosen_rows(rows)) {}

double HeldOutTasks::operator()(const Pulls& pulls) {
  fit_.solve(pulls);
  const double value = losses().mean().item<double>();
  if (!std::isfinite(value)) {
    throw std::runtime_error(
        "coupled regressions: the loss of held-out rows is not finite; are their features too large?");
  }
  return value;
}

PullDerivative HeldOutTasks::derivative() {
  const Tensor slopes = (scores().softmax(1) - targets_) / count();
  const Tensor by_scores = at::zeros({rows_.folds, rows_.size(), rows_.classes}, at::kDouble);
  return fit_.derivative(by_scores.index_put({fold_, index_}, slopes));
}

Tensor HeldOutTasks::scores() const { return fit_.scores().index({fold_, index_}); }

Tensor HeldOutTasks::losses() const { return cross_entropy_of(scores(), targets_); }

Tensor HeldOutTasks::refit(const Pulls& pulls, FitCounts& counts) const {
  const TaskRows rows = rows_.fitted();
  CoupledFit fit(coupled(rows), at::ones({1, rows.size()}, at::kDouble));
  fit.start_from(fit_);
  fit.solve(pulls);
  counts.add(fit.counts());
  return fit.weights()[0];
}

Tensor task_losses(const TaskRows& rows, const Tensor& models) {
  Tensor scores = at::empty({rows.size(), rows.classes}, at::kDouble);
  for (int64_t t = 0; t < rows.tasks; ++t) {
    const Tensor index = rows.task.eq(t).nonzero().squeeze(1);
    scores.index_copy_(0, index, rows.scaled.index_select(0, index).mm(models[t]));
  }
  return -scores.log_softmax(1).gather(1, rows.labels.unsqueeze(1)).squeeze(1);
}

Tensor cross_entropy_of(const Tensor& scores, const Tensor& targets) {
  return -(scores.log_softmax(1) * targets).sum(1);
}

}  // namespace bilevel
