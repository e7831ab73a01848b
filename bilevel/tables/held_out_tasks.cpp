#include "bilevel/tables/held_out_tasks.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "bilevel/tables/softmax_fit.h"

namespace bilevel {
namespace {

// Where each row lies in the blocks, laid out one after another.
struct Places {
  Tensor slot;  // of each row
  int64_t longest = 0;
};

Places places_of(const TaskRows& rows) {
  const Tensor counts = at::bincount(rows.task, {}, rows.tasks);
  const Tensor order = std::get<1>(rows.task.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
  const Tensor sorted = rows.task.index_select(0, order);
  const Tensor begin = (counts.cumsum(0) - counts).index_select(0, sorted);
  const int64_t longest = counts.max().item<int64_t>();
  const Tensor place = sorted * longest + at::arange(rows.size(), at::kLong) - begin;
  return {at::empty_like(place).index_put_({order}, place), longest};
}

// tasks x longest (x ...), zero where there is no row.
Tensor in_blocks(const Tensor& values, const Places& places, int64_t tasks) {
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = tasks * places.longest;
  const Tensor flat = at::zeros(sizes, at::kDouble).index_copy_(0, places.slot, values.to(at::kDouble));
  sizes[0] = places.longest;
  sizes.insert(sizes.begin(), tasks);
  return flat.view(sizes);
}

TaskBlocks blocks_of(const TaskRows& rows) {
  const Places places = places_of(rows);
  return {in_blocks(rows.scaled, places, rows.tasks),
          in_blocks(label_matrix(rows.labels, rows.classes), places, rows.tasks)};
}

// folds x tasks x rows: 1 where the fold of a row `is` it, or is not.
Tensor rows_of_folds(const TaskRows& rows, bool is) {
  const Places places = places_of(rows);
  std::vector<Tensor> all;
  for (int64_t k = 0; k < rows.folds; ++k) {
    all.push_back(in_blocks(is ? rows.fold.eq(k) : rows.fold.ne(k), places, rows.tasks));
  }
  return at::stack(all);
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
      blocks_(blocks_of(rows)),
      held_(rows_of_folds(rows, true)),
      index_(held_.flatten().nonzero().squeeze(1)),
      targets_(blocks_.targets.unsqueeze(0)
                   .expand({rows.folds, -1, -1, -1})
                   .flatten(0, 2)
                   .index_select(0, index_)),
      fit_(blocks_, rows_of_folds(rows, false)) {}

double HeldOutTasks::operator()(const Pulls& pulls) {
  fit_.solve(pulls);
  return losses().mean().item<double>();
}

PullDerivative HeldOutTasks::derivative() {
  return fit_.derivative((fit_.scores().softmax(3) - blocks_.targets) * held_.unsqueeze(3) / count());
}

Tensor HeldOutTasks::scores() const { return fit_.scores().flatten(0, 2).index_select(0, index_); }

Tensor HeldOutTasks::losses() const { return cross_entropy_of(scores(), targets_); }

Tensor HeldOutTasks::refit(const Pulls& pulls, FitCounts& counts) const {
  const TaskRows rows = rows_.fitted();
  const Tensor all = in_blocks(at::ones_like(rows.task), places_of(rows), rows.tasks);
  CoupledFit fit(blocks_of(rows), all.unsqueeze(0));
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
