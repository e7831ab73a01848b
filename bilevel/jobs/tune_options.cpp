#include "bilevel/jobs/tune_options.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "bilevel/data/newsgroups_path.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"

namespace bilevel {
namespace {

constexpr const char* own_tune_files = "files";

void add_tune_files(Fields<TuneJobOptions>& f) {
  using O = TuneJobOptions;
  f.heading(own_tune_files, DataSource::own_files);
  f.include(
      [](O & o) -> auto& { return o.files.train; },
      labelled_file_fields(
          own_tune_files, "train",
          fmt::format(
              "training examples: svmlight, CSV or TSV with labels inside, or CSV, NPY or IDX with {}",
              named("train_labels")),
          "file of the training labels, numbers or names, one per example"));
  f.include(
      [](O & o) -> auto& { return o.files.valid; },
      labelled_file_fields(own_tune_files, "valid",
                           "validation examples; default: a part of the training examples",
                           fmt::format("file of the labels of {}", named("valid"))));
  f.include(
      [](O & o) -> auto& { return o.files.test; },
      labelled_file_fields(own_tune_files, "test", "test examples, on which nothing is tuned",
                           fmt::format("file of the labels of {}", named("test"))));
  f.add(
       "label_column", [](O & o) -> auto& { return o.files.reading.label_column; },
       "label column of a table: first, last, a name in its header, or a position from 0")
      .first();
  f.include(
      [](O & o) -> auto& { return o.files.reading; }, table_file_fields(own_tune_files));
  f.add(
       "features", [](O & o) -> auto& { return o.files.feature_names; },
       "file of the features' names, one per line; default: those in a table's header")
      .is(FieldKind::place);
  f.add(
       "valid_part", [](O & o) -> auto& { return o.files.valid_part; },
       fmt::format("part of the training examples to validate on, without {}", named("valid")))
      .in(between_0_and_1())
      .of(tune_ways().algorithm);
  f.add(
       "bias", [](O & o) -> auto& { return o.files.bias; },
       "append a column of ones with its own regulariser")
      .of(tune_ways().algorithm);
}

void add_tune_set(Fields<TuneJobOptions>& f) {
  using O = TuneJobOptions;
  f.heading("named data", DataSource::named_set);
  f.add(
       "data", [](O & o) -> auto& { return o.data; }, "named set: newsgroups")
      .one_of({"newsgroups"})
      .is(FieldKind::place)
      .first();
  f.add(
       "data_dir", [](O & o) -> auto& { return o.data_dir; },
       "20 Newsgroups by date: its folder or a tar archive of it")
      .is(FieldKind::place);
  f.add(
       "weights", [](O & o) -> auto& { return o.weights; },
       "weights of the words: counts, unit (posts of norm 1) or tf-idf")
      .one_of({"counts", "unit", "tf-idf"});
}

void add_tune_table(Fields<TuneJobOptions>& f) {
  using O = TuneJobOptions;
  f.heading("tables");
  f.add(
       "loss", [](O & o) -> auto& { return o.loss; },
       "cross-entropy if the labels are classes, squared if they are numbers (ridge regression)")
      .one_of({"cross-entropy", "squared"})
      .of(tune_ways().table)
      .first();
  f.add(
       "groups", [](O & o) -> auto& { return o.groups; },
       "one regulariser per group of features: a file with a group's name for each feature, one per line, or "
       "prefix: features whose names agree up to the first _ or =")
      .of(tune_ways().table)
      .first();
  f.add(
       "per_class", [](O & o) -> auto& { return o.per_class; },
       "one regulariser for each class, not one for all")
      .of(tune_ways().table)
      .first();
}

// Calls act with the name of each one that was given, but for `without`.
template <typename Act>
void for_given_tune_fields(TuneJobOptions& o, DataSource source, const std::set<std::string>& without,
                           Act act) {
  for (const std::string& name : OptionsView(o).given_about(source)) {
    if (!without.contains(name)) act(name);
  }
}

}  // namespace

const TableWays& tune_ways() {
  static const TableWays ways{"held-out", "algorithm"};
  return ways;
}

TuneJobOptions::TuneJobOptions() { compute.dtype = "float"; }

const Fields<TuneJobOptions>& TuneJobOptions::fields() {
  static const Fields<TuneJobOptions> table = [] {
    using O = TuneJobOptions;
    Fields<O> f;
    add_tune_files(f);
    add_tune_set(f);
    f.include(
        [](O & o) -> auto& { return o.table; }, TableChoice::fields(tune_ways()));
    add_tune_table(f);
    f.include(
        [](O & o) -> auto& { return o.algorithm; }, AlgorithmChoice::fields());
    f.include(
        [](O & o) -> auto& { return o.automatic; }, AutomaticOptions::fields());
    f.heading("");
    f.add(
         "top", [](O & o) -> auto& { return o.top; },
         "number of the most and the least regularised features to show")
        .in(at_least(0, bounds::within_step));
    f.add(
         "seed", [](O & o) -> auto& { return o.algorithm.solve.seed; },
         "random seed for the split and the batches")
        .first();
    f.include(
        [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    // A table needs none of them, and how long the search is comes from its data.
    for (const Field& field : AlgorithmChoice::fields().rows()) f.row(field.name).tier = FieldTier::more;
    f.row("iterations").by_rule();
    return f;
  }();
  return table;
}

void check_tune_sources(TuneJobOptions& o) {
  const bool files = o.given(o.files.train.features);
  const std::string data = named("data", o.data.empty() ? "newsgroups" : o.data);
  if (files == !o.data.empty()) {
    throw OptionError(files ? fmt::format("{} and {} cannot be combined", named("train"), data)
                            : fmt::format("there is no data: give {} or {}", named("train", "FILE"), data));
  }
  for_given_tune_fields(o, DataSource::own_files, {"train", "valid_part"}, [&](const std::string& name) {
    if (files) return;
    throw OptionError(fmt::format("{} needs {}, not {}", named(name), named("train"), data));
  });
  for_given_tune_fields(o, DataSource::named_set, {"data"}, [&](const std::string& name) {
    if (!files) return;
    throw OptionError(fmt::format("{} needs {}, not {}", named(name), data, named("train")));
  });
  for (const auto& [name, file] : {std::pair{"valid", &o.files.valid}, std::pair{"test", &o.files.test}}) {
    if (o.given(file->labels) && !o.given(file->features)) {
      throw OptionError(fmt::format("{} without {}: give the examples too",
                                    named(std::string(name) + "_labels"), named(name)));
    }
  }
  if (o.given(o.files.valid.features) && o.given(o.files.valid_part)) {
    throw OptionError(fmt::format("{} divides the training file: leave it out with {}", named("valid_part"),
                                  named("valid")));
  }
}

void refuse_tune_sources(TuneJobOptions& o) {
  const auto refuse = [](const std::string& name) {
    throw OptionError(fmt::format(
        "{}: this is for files and named sets, and the examples are in memory; leave it out", named(name)));
  };
  for_given_tune_fields(o, DataSource::own_files, {"valid_part", "bias"}, refuse);
  for_given_tune_fields(o, DataSource::named_set, {}, refuse);
}

bool wants_table(TuneJobOptions& o, bool has_valid) {
  if (!o.data.empty() && o.table.by == tune_ways().table) {
    throw OptionError(fmt::format("{} with {}: it is for your own tables; leave it out",
                                  named("by", tune_ways().table), named("data", o.data)));
  }
  if (!means_table(OptionsView(o), tune_ways(), o.data.empty())) return false;
  if (o.per_class && o.loss == "squared") {
    throw OptionError(fmt::format("{} with {}: there are no classes; leave one of them out",
                                  named("per_class"), named("loss", o.loss)));
  }
  if (has_valid && o.given(o.table.folds)) refuse_folds_beside_valid(o.table.folds);
  return true;
}

void set_tune_defaults(TuneJobOptions& o) {
  AlgorithmSettings& s = o.algorithm.settings;
  const auto unless_given = [&](auto& field, auto value) {
    if (!o.given(field)) field = value;
  };
  unless_given(s.inner.steps, int64_t{10});
  unless_given(o.algorithm.solve.iterations, int64_t{100});
  unless_given(s.inner.rate, o.data.empty() ? 0.0 : 100.0);
  unless_given(s.outer.optimizer, std::string("sgd"));
  unless_given(s.outer.rate, s.outer.optimizer == "adam" ? 0.05 : o.data.empty() ? 0.0 : 100.0);
}

TableSets read_tune_tables(const TuneJobOptions& o, bool by_table) {
  RegularizerFileOptions files = o.files;
  files.reading.dtype = reading_dtype(o.compute, o.given(o.compute.dtype), by_table);
  files.reading.labels_are_numbers = o.loss == "squared";
  return read_table_sets(files);
}

RegularizerSets read_tune_newsgroups(const TuneJobOptions& o) {
  NewsgroupsOptions words{.dtype = o.compute.dtype == "float" ? at::kFloat : at::kDouble};
  words.weights = o.weights == "counts"   ? WordWeights::counts
                  : o.weights == "tf-idf" ? WordWeights::tf_idf
                                          : WordWeights::unit_counts;
  return read_newsgroup_sets(newsgroups_path(o.data_dir), words, o.files.valid_part, o.algorithm.solve.seed);
}

}  // namespace bilevel
