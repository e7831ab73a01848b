// `interact` by the loss of rows that were held out.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <utility>

#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/interact_run.h"
#include "bilevel/tables/table_scores.h"

namespace bilevel {
namespace {

// The scores of examples under the models of their tasks.
TableScores score_tasks(const TaskExamples& examples, const Tensor& weights) {
  TableScores all;
  for (int64_t t = 0; t < weights.size(0); ++t) {
    const Tensor index = examples.tasks.eq(t).nonzero().squeeze(1);
    if (index.numel() == 0) continue;
    Features rows;
    rows.dense = examples.features.index_select(0, index);
    const TableScores mine = score_table(rows, examples.labels.index_select(0, index), weights[t]);
    const double part = static_cast<double>(index.numel()) / static_cast<double>(examples.size());
    all.accuracy += part * mine.accuracy;
    all.loss += part * mine.loss;
  }
  return all;
}

LearnedTasks learned_tasks_of(const TaskTable& table, const TaskSets& sets) {
  LearnedTasks learned;
  learned.interaction = table.coupling;
  learned.regularizer = table.regularizer;
  learned.w = table.weights.mT().contiguous();
  learned.valid_loss = table.held_out_loss;
  learned.valid_accuracy = table.held_out_accuracy;
  learned.train_accuracy = score_tasks(sets.train, table.weights).accuracy;
  if (sets.test.size() > 0) {
    const TableScores test = score_tasks(sets.test, table.weights);
    learned.test_accuracy = test.accuracy;
    learned.test_loss = test.loss;
  }
  return learned;
}

// Waking other threads takes longer than what a small table gives them to do.
class ThreadsOfTable {
 public:
  ThreadsOfTable(const TaskExamples& train, int64_t classes, bool given) : before_(at::get_num_threads()) {
    const int64_t columns = train.features.size(1) + 1;
    if (!given && train.size() * columns < least_work / (columns * (classes - 1))) at::set_num_threads(1);
  }
  ~ThreadsOfTable() { at::set_num_threads(before_); }
  ThreadsOfTable(const ThreadsOfTable&) = delete;
  ThreadsOfTable& operator=(const ThreadsOfTable&) = delete;

 private:
  static constexpr int64_t least_work = 10'000'000;  // products in the Hessians of all tasks
  int before_;
};

}  // namespace

void interact_by_held_out(InteractJobOptions& o, RunContext& context, const JobClock& clock,
                          InteractJobResult& result) {
  const TaskSets& sets = result.sets;
  const uint64_t seed = o.algorithm.solve.seed;
  const bool has_valid = sets.valid.size() > 0;
  const InteractTableData data{.train = {sets.train.features, sets.train.labels},
                               .valid = {sets.valid.features, sets.valid.labels},
                               .task = sets.train.tasks,
                               .valid_task = sets.valid.tasks,
                               .tasks = sets.tasks,
                               .classes = sets.classes};
  if (!has_valid) refuse_folds(o.table.folds, data.train.features);
  result.by = interact_ways().table;
  result.folds = has_valid ? 0 : o.table.folds;
  result.has_bias = true;
  context.open("interact", seed, OptionsView(o));
  result.folder = context.folder_name();
  context.work([&] {
    const ThreadsOfTable threads(sets.train, sets.classes, o.given(o.compute.threads));
    try {
      result.table =
          interact_table(data, {.folds = o.table.folds, .standardize = !o.table.no_standardize, .seed = seed},
                         table_hooks(context, "interact"));
    } catch (const TableInterrupted&) {
      result.end = end_of_interrupted_table(context, result.json);
      return;
    }
    result.interact.learned = learned_tasks_of(result.table->learned, sets);
    result.interact.independent = learned_tasks_of(result.table->independent, sets);
    result.interact.pooled = learned_tasks_of(result.table->pooled, sets);
    choose_best(result.interact);
    result.seconds = clock.seconds();
    warn_of_unconverged(result.table->counts, context);
    finish_interact(o, context, result);
  });
}

}  // namespace bilevel
