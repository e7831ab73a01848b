#include "bilevel/jobs/clean_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"

namespace bilevel {
namespace {

constexpr const char* own_cleaning_files = "your own files";

void add_cleaning_files(Fields<CleanJobOptions>& f) {
  using O = CleanJobOptions;
  f.heading(own_cleaning_files, DataSource::own_files);
  f.include(
      [](O & o) -> auto& { return o.files.train; },
      labelled_file_fields(
          own_cleaning_files, "train", "training examples, some of them with wrong labels",
          fmt::format("file of the training labels; default: read from {}", named("train"))));
  f.include(
      [](O & o) -> auto& { return o.files.valid; },
      labelled_file_fields(
          own_cleaning_files, "valid",
          fmt::format("examples whose labels are right; not needed for a table ({})",
                      named("by", clean_ways().table)),
          fmt::format("file of the validation labels; default: read from {}", named("valid"))));
  f.include(
      [](O & o) -> auto& { return o.files.test; },
      labelled_file_fields(own_cleaning_files, "test", "examples to test the cleaned model on",
                           fmt::format("file of the test labels; default: read from {}", named("test"))));
  f.add(
       "label_column", [](O & o) -> auto& { return o.files.reading.label_column; },
       "label column of a table without a file of labels: first, last, a name or a position from 0")
      .first();
  f.include(
      [](O & o) -> auto& { return o.files.reading; }, table_file_fields(own_cleaning_files));
  f.add(
       "classes", [](O & o) -> auto& { return o.files.classes; },
       fmt::format("number of classes N: the labels must be 0 to N-1, all present; 0 = the labels in {}",
                   named("train")))
      .in(at_least(0, bounds::width));
}

void add_named_cleaning(Fields<CleanJobOptions>& f) {
  using O = CleanJobOptions;
  f.heading("a named set with noise added", DataSource::named_set);
  f.add(
       "data", [](O & o) -> auto& { return o.data; }, "named set: mnist or fashion-mnist")
      .is(FieldKind::place)
      .first();
  f.add(
       "data_dir", [](O & o) -> auto& { return o.named.folder; },
       "folder of the named data sets, fetched or unpacked")
      .is(FieldKind::place)
      .from_environment("BILEVEL_DATA");
  f.add(
       "corruption", [](O & o) -> auto& { return o.named.corruption; },
       "probability that a training label is replaced")
      .in(at_least(0, 1));
  f.add(
       "train_size", [](O & o) -> auto& { return o.named.train; },
       "number of training examples, class-balanced")
      .in(at_least(0, bounds::examples));
  f.add(
       "valid_size", [](O & o) -> auto& { return o.named.valid; },
       "number of validation examples, class-balanced")
      .in(at_least(0, bounds::examples));
}

void add_model_and_list(Fields<CleanJobOptions>& f) {
  using O = CleanJobOptions;
  const std::string weights = clean_ways().algorithm;
  f.heading("model and list");
  f.add(
       "model", [](O & o) -> auto& { return o.model; },
       "model: linear (softmax regression) or cnn (small network, images only)")
      .one_of({"linear", "cnn"});
  f.add(
       "regularization", [](O & o) -> auto& { return o.regularization; },
       "strength of the penalty on |W|^2; 0.001 for linear, 0 for cnn")
      .in(at_least(0))
      .by_rule()
      .of(weights);
  f.add(
       "no_bias", [](O & o) -> auto& { return o.no_bias; }, "append no column of ones to the features")
      .of(weights);
  f.add(
       "threshold", [](O & o) -> auto& { return o.threshold; },
       "an example with x below this is suspect; its weight is sigmoid(x)")
      .in({})
      .first()
      .of(weights);
  f.add(
       "suspects", [](O & o) -> auto& { return o.most_suspects; },
       "largest number of suspects in the list; 0 = no limit")
      .in(at_least(0, bounds::examples))
      .first();
  f.add(
       "final_steps", [](O & o) -> auto& { return o.final_steps; },
       "largest number of steps to train the final model; 2000 for linear, 1000 for cnn")
      .in(at_least(0, bounds::endless))
      .by_rule()
      .of(weights);
  f.add(
       "seed", [](O & o) -> auto& { return o.algorithm.solve.seed; },
       "random seed for the split, the noise, the batches and the start")
      .first();
}

std::vector<std::string> named_ones(std::vector<std::string> fields) {
  for (std::string& field : fields) field = named(field);
  return fields;
}

}  // namespace

const TableWays& clean_ways() {
  static const TableWays ways{"noise-model", "weights"};
  return ways;
}

CleanJobOptions::CleanJobOptions() {
  algorithm.algorithm = "krmd";
  algorithm.settings = default_clean_options({.problem = {}, .scores = {}, .convex = true}).settings;
  compute.dtype = "float";
}

const Fields<CleanJobOptions>& CleanJobOptions::fields() {
  static const Fields<CleanJobOptions> table = [] {
    using O = CleanJobOptions;
    Fields<O> f;
    add_cleaning_files(f);
    add_named_cleaning(f);
    add_model_and_list(f);
    f.include(
        [](O & o) -> auto& { return o.table; }, TableChoice::fields(clean_ways()));
    f.include(
        [](O & o) -> auto& { return o.algorithm; }, AlgorithmChoice::fields());
    f.include(
        [](O & o) -> auto& { return o.automatic; }, AutomaticOptions::fields());
    f.include(
        [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    // A table needs none of them, and how many iterations are enough depends on the model.
    for (const Field& field : AlgorithmChoice::fields().rows()) f.row(field.name).tier = FieldTier::more;
    f.row("iterations").by_rule();
    return f;
  }();
  return table;
}

bool wants_table(CleanJobOptions& o) {
  const bool possible = o.data.empty() && o.model == "linear";
  if (!possible && o.table.by == clean_ways().table) {
    throw OptionError(fmt::format(
        "{} with {}: it works on your own tables with the linear model; leave one of them out",
        named("by", clean_ways().table), o.data.empty() ? named("model", "cnn") : named("data", o.data)));
  }
  return means_table(OptionsView(o), clean_ways(), possible);
}

bool insists_on_table(const CleanJobOptions& o, bool has_valid) {
  return o.table.by == clean_ways().table || o.given(o.table.folds) || o.table.no_standardize || !has_valid;
}

void check_clean_sources(CleanJobOptions& o, bool by_table) {
  const OptionsView view(o);
  const auto own = named_ones(view.given_about(DataSource::own_files));
  if (!o.data.empty() && !own.empty()) {
    throw OptionError(fmt::format("{} with {}: give a named set or your own files, not both",
                                  named("data", o.data), fmt::join(own, ", ")));
  }
  if (o.model == "cnn" && o.no_bias) {
    throw OptionError(no_effect(named("no_bias"), named("model", "cnn"), {"linear"}));
  }
  if (!o.data.empty()) return;
  const LabelledFile &train = o.files.train, &valid = o.files.valid, &test = o.files.test;
  if (valid.features.empty() && !valid.labels.empty()) {
    throw OptionError(fmt::format("{}: {} is missing", named("valid_labels", valid.labels), named("valid")));
  }
  if (!train.features.empty() && valid.features.empty() && !by_table) {
    throw OptionError(
        fmt::format("{} is missing: it holds the trusted examples that {} learns from. Give it, or "
                    "leave out the options of that way, for {}, which needs none",
                    named("valid"), named("by", clean_ways().algorithm), named("by", clean_ways().table)));
  }
  if (train.features.empty() || (!by_table && valid.features.empty())) {
    throw OptionError(fmt::format("{} missing: clean needs {} and {} with their labels, or {}",
                                  !train.features.empty() ? named("valid") + " is"
                                  : !valid.features.empty()
                                      ? named("train") + " is"
                                      : named("train") + " and " + named("valid") + " are",
                                  named("train"), named("valid"), named("data")));
  }
  std::vector<std::string> drawn;
  for (const std::string& name : view.given_about(DataSource::named_set)) {
    if (view.at(name).kind == FieldKind::result) drawn.push_back(named(name));
  }
  if (!drawn.empty()) {
    throw OptionError(fmt::format("{}: noise and sizes apply to {} only; your files are used as they are",
                                  fmt::join(drawn, ", "), named("data")));
  }
  if (test.features.empty() && !test.labels.empty()) {
    throw OptionError(fmt::format("{}: {} is missing", named("test_labels", test.labels), named("test")));
  }
  if (o.given(o.files.reading.label_column) && !train.labels.empty() &&
      (valid.features.empty() || !valid.labels.empty()) && (test.features.empty() || !test.labels.empty())) {
    throw OptionError(no_effect(named("label_column", o.files.reading.label_column),
                                "a file of labels for every set", {"a set without one"}));
  }
}

void refuse_clean_sources(CleanJobOptions& o) {
  for (const DataSource source : {DataSource::own_files, DataSource::named_set}) {
    if (const auto names = named_ones(OptionsView(o).given_about(source)); !names.empty()) {
      throw OptionError(
          fmt::format("{}: this is for files and named sets, and the examples are in memory; leave it out",
                      fmt::join(names, ", ")));
    }
  }
  if (o.model == "cnn") {
    throw OptionError(fmt::format("{}: images come from files; examples in memory need the linear model",
                                  named("model", "cnn")));
  }
}

CleaningSets read_clean_data(const CleanJobOptions& o, bool by_table) {
  const at::ScalarType dtype = reading_dtype(o.compute, o.given(o.compute.dtype), by_table);
  if (!o.data.empty()) {
    NamedCleaningOptions drawn = o.named;
    drawn.set = o.data;
    drawn.seed = o.algorithm.solve.seed;
    drawn.bias = o.has_bias();
    drawn.dtype = dtype;
    return make_named_cleaning_sets(drawn);
  }
  CleaningFileOptions files = o.files;
  files.bias = false;
  files.reading.dtype = dtype;
  return read_cleaning_sets(files);
}

}  // namespace bilevel
