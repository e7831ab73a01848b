// The field table of the job `interact`, and which of its options go together.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/interact_run.h"
#include "bilevel/jobs/table_choice.h"

namespace bilevel {
namespace {

constexpr const char* own_task_files = "your own files";

void add_task_files(Fields<InteractJobOptions>& f) {
  using O = InteractJobOptions;
  f.heading(own_task_files, DataSource::own_files);
  f.add(
       "train", [](O & o) -> auto& { return o.files.train.examples.features; },
       fmt::format("training examples: svmlight, CSV or TSV with labels inside, or CSV, NPY or IDX with {}",
                   named("train_labels")))
      .is(FieldKind::place)
      .first();
  f.add(
       "train_labels", [](O & o) -> auto& { return o.files.train.examples.labels; },
       fmt::format("file of the training labels; default: read from {}", named("train")))
      .is(FieldKind::place)
      .first();
  f.add(
       "train_tasks", [](O & o) -> auto& { return o.files.train.tasks; },
       fmt::format("file that names each example's task, by a number or a name; default: {}, or the classes "
                   "are the tasks",
                   named("task_column")))
      .is(FieldKind::place)
      .first();
  f.add(
       "valid", [](O & o) -> auto& { return o.files.valid.examples.features; },
       "validation examples; default: a part of every task's training examples")
      .is(FieldKind::place)
      .first();
  f.add(
       "valid_labels", [](O & o) -> auto& { return o.files.valid.examples.labels; },
       fmt::format("file of the validation labels; default: read from {}", named("valid")))
      .is(FieldKind::place);
  f.add(
       "valid_tasks", [](O & o) -> auto& { return o.files.valid.tasks; },
       fmt::format("file that names the task of each example in {}", named("valid")))
      .is(FieldKind::place);
  f.add(
       "test", [](O & o) -> auto& { return o.files.test.examples.features; },
       "test examples, on which nothing is tuned")
      .is(FieldKind::place)
      .first();
  f.add(
       "test_labels", [](O & o) -> auto& { return o.files.test.examples.labels; },
       fmt::format("file of the test labels; default: read from {}", named("test")))
      .is(FieldKind::place);
  f.add(
       "test_tasks", [](O & o) -> auto& { return o.files.test.tasks; },
       fmt::format("file that names the task of each example in {}", named("test")))
      .is(FieldKind::place);
  f.add(
       "label_column", [](O & o) -> auto& { return o.files.reading.label_column; },
       "label column of a table: first, last, a name in its header, or a position from 0")
      .first();
  f.add(
       "task_column", [](O & o) -> auto& { return o.files.reading.group_column; },
       fmt::format("column that holds each example's task, named like {}", named("label_column")))
      .first();
  f.include(
      [](O & o) -> auto& { return o.files.reading; }, table_file_fields(own_task_files));
  f.add(
       "valid_part", [](O & o) -> auto& { return o.files.valid_part; },
       fmt::format("part of the training examples to validate on, without {}", named("valid")))
      .in(between_0_and_1())
      .of(interact_ways().algorithm);
  f.add(
       "bias", [](O & o) -> auto& { return o.files.bias; },
       "append a column of ones, coupled and regularised like the others")
      .of(interact_ways().algorithm);
}

void add_made_up_tasks(Fields<InteractJobOptions>& f) {
  using O = InteractJobOptions;
  f.heading("made-up tasks with known clusters", DataSource::named_set);
  f.add(
       "data", [](O & o) -> auto& { return o.data; }, "made-up tasks: synthetic")
      .one_of({"synthetic"})
      .is(FieldKind::place);
  const Range sizes = at_least(1, bounds::width);
  f.add(
       "tasks", [](O & o) -> auto& { return o.synthetic.tasks; }, "number of tasks")
      .in(sizes);
  f.add(
       "clusters", [](O & o) -> auto& { return o.synthetic.clusters; },
       "number of clusters that the tasks fall into")
      .in(sizes);
  f.add(
       "features", [](O & o) -> auto& { return o.synthetic.features; }, "number of features")
      .in(sizes);
  f.add(
       "train_examples", [](O & o) -> auto& { return o.synthetic.train; }, "training examples for each task")
      .in(sizes);
  f.add(
       "valid_examples", [](O & o) -> auto& { return o.synthetic.valid; },
       "validation examples for each task")
      .in(sizes);
  f.add(
       "test_examples", [](O & o) -> auto& { return o.synthetic.test; }, "test examples for each task")
      .in(sizes);
  f.add(
       "spread", [](O & o) -> auto& { return o.synthetic.spread; },
       "distance of a task's model from its cluster's, which has norm 1")
      .in(at_least(0));
  f.add(
       "noise", [](O & o) -> auto& { return o.synthetic.noise; }, "standard deviation of the label noise")
      .in(at_least(0));
}

void add_task_search(Fields<InteractJobOptions>& f) {
  using O = InteractJobOptions;
  f.heading("the search");
  f.add(
       "patience", [](O & o) -> auto& { return o.patience; },
       "end the search after this many iterations without a smaller validation loss; 0 = never")
      .in(at_least(0, bounds::endless))
      .of(interact_ways().algorithm);
  f.add(
       "first_coupling", [](O & o) -> auto& { return o.problem.first_coupling; },
       "starting value of C, as the coupling's curvature divided by the data's")
      .in(above(0))
      .of(interact_ways().algorithm);
  f.add(
       "first_regularizer", [](O & o) -> auto& { return o.problem.first_regularizer; },
       "starting value of rho, as the regulariser's curvature divided by the data's")
      .in(above(0))
      .of(interact_ways().algorithm);
  f.add(
       "seed", [](O & o) -> auto& { return o.algorithm.solve.seed; },
       "random seed for the made-up tasks, the folds or the split, and the batches")
      .first();
}

// Those about these examples that were given, but for one.
std::vector<std::string> given_task_fields(const OptionsView& options, DataSource source,
                                           const std::string& without) {
  std::vector<std::string> names;
  for (const std::string& field : options.given_about(source)) {
    if (field != without) names.push_back(named(field));
  }
  return names;
}

}  // namespace

const TableWays& interact_ways() {
  static const TableWays ways{"held-out", "algorithm"};
  return ways;
}

InteractJobOptions::InteractJobOptions() {
  const InteractOptions defaults = default_interact_options();
  patience = defaults.patience;
  problem = defaults.problem;
  algorithm.algorithm = "krmd";
  algorithm.settings = defaults.settings;
  algorithm.solve = defaults.solve;
}

const Fields<InteractJobOptions>& InteractJobOptions::fields() {
  static const Fields<InteractJobOptions> table = [] {
    using O = InteractJobOptions;
    Fields<O> f;
    add_task_files(f);
    add_made_up_tasks(f);
    f.include(
        [](O & o) -> auto& { return o.table; }, TableChoice::fields(interact_ways()));
    f.row("by").help = fmt::format(
        "approach: {} (your own tables with tasks, unless an algorithm's option is given), {}, or auto",
        interact_ways().table, interact_ways().algorithm);
    add_task_search(f);
    f.include(
        [](O & o) -> auto& { return o.algorithm; }, AlgorithmChoice::fields());
    f.row("truncate").by_rule().help = "K: number of steps that krmd keeps; default: all T";
    for (const char* name : {"method", "terms", "inner_rate", "outer_rate"})
      f.row(name).tier = FieldTier::more;
    f.include(
        [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

void check_task_sources(InteractJobOptions& o) {
  const OptionsView view(o);
  const bool files = o.given(o.files.train.examples.features);
  if (files && o.given(o.data)) {
    throw OptionError(
        fmt::format("{} and {} cannot be combined", named("train"), named("data", "synthetic")));
  }
  if (const auto names = given_task_fields(view, DataSource::named_set, "data"); files && !names.empty()) {
    throw OptionError(fmt::format("{}: applies to made-up tasks only; the files of {} are used as they are",
                                  fmt::join(names, ", "), named("train")));
  }
  if (const auto names = given_task_fields(view, DataSource::own_files, "train"); !files && !names.empty()) {
    throw OptionError(fmt::format("{}: {} is missing", fmt::join(names, ", "), named("train")));
  }
  for (const auto& [name, file] : {std::pair{"valid", &o.files.valid}, std::pair{"test", &o.files.test}}) {
    const std::string set = name;
    const bool is_given = o.given(file->examples.features);
    for (const auto& [what, has] :
         {std::pair{"_labels", o.given(file->examples.labels)}, std::pair{"_tasks", o.given(file->tasks)}}) {
      if (has && !is_given) {
        throw OptionError(fmt::format("{} without {}: give the examples too", named(set + what), named(set)));
      }
    }
    const bool train_tasks = o.given(o.files.train.tasks);
    if (is_given && o.given(file->tasks) != train_tasks) {
      throw OptionError(fmt::format("{} and {} belong together: give {} too", named("train_tasks"),
                                    named(set + "_tasks"),
                                    train_tasks ? named(set + "_tasks") : named("train_tasks")));
    }
  }
  if (o.given(o.files.reading.group_column) && o.given(o.files.train.tasks)) {
    throw OptionError(fmt::format("{} and {} cannot be combined: give one of the two", named("task_column"),
                                  named("train_tasks")));
  }
  if (o.given(o.files.valid.examples.features) && o.given(o.files.valid_part)) {
    throw OptionError(fmt::format("{} divides the training file: leave it out with {}", named("valid_part"),
                                  named("valid")));
  }
}

bool wants_table(InteractJobOptions& o, bool possible, bool has_valid) {
  const OptionsView view(o);
  if (!means_table(view, interact_ways(), possible)) return false;
  if (has_valid && o.given(o.table.folds)) refuse_folds_beside_valid(o.table.folds);
  return true;
}

void refuse_task_sources(InteractJobOptions& o) {
  for (const DataSource source : {DataSource::own_files, DataSource::named_set}) {
    if (const auto names = given_task_fields(OptionsView(o), source, ""); !names.empty()) {
      throw OptionError(
          fmt::format("{}: this is for files and named sets, and the tasks are in memory; leave it out",
                      fmt::join(names, ", ")));
    }
  }
}

}  // namespace bilevel
