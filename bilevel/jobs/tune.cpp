#include "bilevel/jobs/tune.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <ostream>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/data/csv_line.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/saved_model.h"
#include "bilevel/jobs/solve_run.h"
#include "bilevel/jobs/tune_run.h"
#include "bilevel/tables/scaled_table.h"

namespace bilevel {
namespace {

void mark_given(TuneJobOptions& o) {
  TuneJobOptions defaults;
  OptionsView(o).mark_changed(OptionsView(defaults));
}

// False: its dense form is too large, and no option insists.
bool is_for_held_out(const TuneJobOptions& o, const TableSets& sets, const std::string& data) {
  const Features& train = sets.train.features;
  if (is_small_enough({&train, &sets.valid.features, &sets.test.features}, sets.classes)) return true;
  if (o.table.by == "auto" && !o.given(o.table.folds) && !o.table.no_standardize) return false;
  throw OptionError(
      fmt::format("{}: {} has {} rows of {} columns and {} classes, and it takes sets of at most {} numbers, "
                  "by columns and by classes; use {}",
                  named("by", tune_ways().table), data, train.rows(), train.columns(), sets.classes,
                  largest_table, named("by", tune_ways().algorithm)));
}

void require_cpu(const TuneJobOptions& o) {
  if (o.compute.device == "cpu") return;
  throw OptionError(fmt::format("{}: the closed forms of softmax regression run on the CPU: use {}",
                                named("device", o.compute.device), named("device", "cpu")));
}

// What is wrong with the algorithm's options by themselves, before the data are read.
void check_tune_algorithm(const TuneJobOptions& o, const RunContext& context) {
  refuse_ignored_accuracy(o.given, o.automatic, automatic_choice(context), wants_auto(o.algorithm));
  (void)find_algorithm(o.algorithm.algorithm);
  const AlgorithmSettings& s = o.algorithm.settings;
  if (o.given(s.inner.rate)) require_positive("tune", "inner_rate", s.inner.rate);
  if (o.given(s.outer.rate)) require_positive("tune", "outer_rate", s.outer.rate);
}

int64_t nonzeros_in(const Features& features) {
  return features.is_sparse() ? features.sparse.nonzeros() : features.dense.count_nonzero().item<int64_t>();
}

TableSets table_sets_of(const ExampleSets& data, const TuneJobOptions& o, at::ScalarType dtype) {
  const bool is_squared = o.loss == "squared";
  ExampleSets all = is_squared ? completed_numbers(data, dtype) : completed(data, dtype);
  TableSets sets;
  sets.classes = is_squared ? 1 : static_cast<int64_t>(all.class_names.size());
  sets.class_names = std::move(all.class_names);
  sets.feature_names = std::move(all.feature_names);
  sets.nonzeros = nonzeros_in(all.train.features);
  sets.schema = std::move(all.schema);
  for (const auto& [from, to] : {std::pair{&all.train, &sets.train}, std::pair{&all.valid, &sets.valid},
                                 std::pair{&all.test, &sets.test}}) {
    if (from->size() == 0) continue;
    to->features = o.files.bias ? append_ones(from->features) : std::move(from->features);
    to->labels = from->labels;
  }
  if (o.files.bias) sets.feature_names.emplace_back("(bias)");
  return sets;
}

TuneJobResult tune_tables(TuneJobOptions& o, TableSets sets, const std::string& data, bool by_table,
                          RunContext& context, const JobClock& clock) {
  TuneJobResult result;
  result.schema = sets.schema;
  if (by_table && is_for_held_out(o, sets, data)) {
    refuse_ranks(context, named("by", tune_ways().table), "take " + named("by", tune_ways().algorithm));
    tune_by_held_out(o, sets, context, clock, result);
  } else {
    for (ExampleSet* set : {&sets.train, &sets.valid, &sets.test}) set_dtype(set->features, o.compute);
    tune_by_algorithm(o, divided(std::move(sets), o.files.valid_part, o.algorithm.solve.seed, data), context,
                      result);
  }
  return result;
}

Json feature_json(const TunePenalty& p) {
  Json json = {{"name", p.feature}, {"column", p.column}};
  if (!p.class_name.empty()) json["class"] = p.class_name;
  json["x"] = number(p.x);
  json["regulariser"] = number(std::exp(p.x));
  return json;
}

}  // namespace

TuneJobResult run_tune(TuneJobOptions o, RunContext& context) {
  const JobClock clock;
  mark_given(o);
  keep_earlier_way(OptionsView(o), context, tune_ways());
  check_tune_sources(o);
  require_cpu(o);
  const bool by_table = wants_table(o, o.given(o.files.valid.features));
  (void)apply(o.compute, context);
  check_tune_algorithm(o, context);
  context.progress("tune: reading");
  tell_notes(o.files.reading, context);
  if (o.data.empty()) {
    return tune_tables(o, read_tune_tables(o, by_table), o.files.train.features, by_table, context, clock);
  }
  TuneJobResult result;
  tune_by_algorithm(o, read_tune_newsgroups(o), context, result);
  return result;
}

TuneJobResult run_tune(TuneJobOptions o, const ExampleSets& data, RunContext& context) {
  const JobClock clock;
  mark_given(o);
  keep_earlier_way(OptionsView(o), context, tune_ways());
  refuse_tune_sources(o);
  require_cpu(o);
  const bool by_table = wants_table(o, data.valid.size() > 0);
  (void)apply(o.compute, context);
  check_tune_algorithm(o, context);
  const at::ScalarType dtype = reading_dtype(o.compute, o.given(o.compute.dtype), by_table);
  return tune_tables(o, table_sets_of(data, o, dtype), "train", by_table, context, clock);
}

std::vector<int64_t> by_regularizer(const Tensor& x) {
  const Tensor values = x.detach().to(at::kDouble).flatten().contiguous();
  const double* value = values.data_ptr<double>();
  std::vector<int64_t> order(static_cast<size_t>(values.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value[a] > value[b]; });
  return order;
}

std::vector<TunePenalty> ordered_penalties(const TuneJobResult& result) {
  const bool has_classes = result.x.dim() > 1;
  const int64_t classes = has_classes ? result.x.size(1) : 1;
  const Tensor x = result.x.detach().to(at::kDouble).contiguous();
  const Tensor weights = result.model.narrow(0, 0, result.x.size(0)).to(at::kDouble);
  const Tensor norms = (has_classes ? weights.abs() : weights.norm(2, 1)).contiguous();
  std::vector<TunePenalty> ordered;
  for (const int64_t position : result.order) {
    const int64_t column = position / classes;
    ordered.push_back({.feature = result.feature_names[static_cast<size_t>(column)],
                       .class_name = has_classes ? result.class_names[static_cast<size_t>(position % classes)]
                                                 : std::string(),
                       .column = column,
                       .x = x.data_ptr<double>()[position],
                       .weight_norm = norms.data_ptr<double>()[position]});
  }
  return ordered;
}

void add_features(const TuneJobResult& result, size_t count, Json& json) {
  json["most_regularised"] = json["least_regularised"] = Json::array();
  if (count == 0) return;
  const std::vector<TunePenalty> ordered = ordered_penalties(result);
  for (size_t i = 0; i < std::min(count, ordered.size()); ++i) {
    json["most_regularised"].push_back(feature_json(ordered[i]));
    json["least_regularised"].push_back(feature_json(ordered[ordered.size() - 1 - i]));
  }
}

std::vector<std::string> write_tune_files(const TuneJobResult& result) {
  const std::filesystem::path path(result.folder);
  write_npy(path / "regularisers.npy", result.x.exp());
  write_npy(path / "model.npy", result.model);
  if (result.schema.features() > 0) {
    SavedModel saved{.job = "tune", .class_names = result.class_names};
    saved.schema = result.schema;
    saved.has_intercept = result.model.size(0) == result.schema.features() + 1;
    write_saved_model(result.folder, saved);
  }
  write_file(path / "regularisers.csv", [&](std::ostream& to) {
    const bool has_classes = result.x.dim() > 1, has_groups = !result.group_names.empty();
    to << "feature," << (has_classes ? "class," : "") << (has_groups ? "group," : "")
       << "x,regulariser,weight_norm\n";
    for (const TunePenalty& p : ordered_penalties(result)) {
      to << csv_quoted(p.feature) << ',';
      if (has_classes) to << csv_quoted(p.class_name) << ',';
      if (has_groups) to << csv_quoted(result.group_names[static_cast<size_t>(p.column)]) << ',';
      to << fmt::format("{:.9g},{:.9g},{:.9g}\n", p.x, std::exp(p.x), p.weight_norm);
    }
  });
  std::vector<std::string> names{"regularisers.npy", "regularisers.csv", "model.npy"};
  if (result.schema.features() > 0) names.emplace_back("model.json");
  return names;
}

}  // namespace bilevel
