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
#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/tune_run.h"
#include "bilevel/tables/scaled_table.h"

namespace bilevel {
namespace {

void mark_given(TuneJobOptions& o) {
  TuneJobOptions defaults;
  OptionsView(o).mark_changed(OptionsView(defaults));
}

// False: its dense form is too large, and nobody insists.
bool is_for_held_out(const TuneJobOptions& o, const TableSets& sets, const std::string& data) {
  const Features& train = sets.train.features;
  if (is_small_enough({&train, &sets.valid.features, &sets.test.features}, sets.classes)) return true;
  if (o.table.by == "auto" && !o.given(o.table.folds) && !o.table.no_standardize) return false;
  throw OptionError(fmt::format(
      "{}: {} has {} rows of {} columns and {} classes, and it takes sets of at most {} numbers, by columns "
      "and by classes; take {}",
      named("by", tune_ways().table), data, train.rows(), train.columns(), sets.classes, largest_table,
      named("by", tune_ways().algorithm)));
}

void require_cpu(const TuneJobOptions& o) {
  if (o.compute.device == "cpu") return;
  throw OptionError(fmt::format("{}: the closed forms of softmax regression run on the CPU: take {}",
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
  ExampleSets all = completed(data, dtype);
  TableSets sets;
  sets.classes = static_cast<int64_t>(all.class_names.size());
  sets.class_names = std::move(all.class_names);
  sets.feature_names = std::move(all.feature_names);
  sets.nonzeros = nonzeros_in(all.train.features);
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
  if (by_table && is_for_held_out(o, sets, data)) {
    tune_by_held_out(o, sets, context, clock, result);
  } else {
    tune_by_algorithm(o, divided(std::move(sets), o.files.valid_part, o.algorithm.solve.seed, data), context,
                      result);
  }
  return result;
}

std::string csv_quoted(const std::string& name) {
  if (name.find_first_of(",\"\n") == std::string::npos) return name;
  std::string result = "\"";
  for (const char c : name) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

Json feature_json(const TuneJobResult& result, int64_t j) {
  const auto x = result.x[j].item<double>();
  return {{"name", result.feature_names[static_cast<size_t>(j)]},
          {"column", j},
          {"x", number(x)},
          {"regulariser", number(std::exp(x))}};
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
  if (o.data.empty()) {
    return tune_tables(o, read_tune_tables(o), o.files.train.features, by_table, context, clock);
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
  const at::TensorOptions tensors = apply(o.compute, context);
  check_tune_algorithm(o, context);
  return tune_tables(o, table_sets_of(data, o, c10::typeMetaToScalarType(tensors.dtype())), "train", by_table,
                     context, clock);
}

std::vector<int64_t> by_regularizer(const Tensor& x) {
  const Tensor values = x.detach().to(at::kDouble).contiguous();
  const double* value = values.data_ptr<double>();
  std::vector<int64_t> order(static_cast<size_t>(values.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value[a] > value[b]; });
  return order;
}

void add_features(const TuneJobResult& result, size_t count, Json& json) {
  json["most_regularised"] = json["least_regularised"] = Json::array();
  const std::vector<int64_t>& order = result.order;
  for (size_t i = 0; i < std::min(count, order.size()); ++i) {
    json["most_regularised"].push_back(feature_json(result, order[i]));
    json["least_regularised"].push_back(feature_json(result, order[order.size() - 1 - i]));
  }
}

std::vector<std::string> write_tune_files(const TuneJobResult& result) {
  const std::filesystem::path path(result.folder);
  const Tensor norms = result.model.norm(2, 1);
  write_npy(path / "regularisers.npy", result.x.exp());
  write_npy(path / "model.npy", result.model);
  write_file(path / "regularisers.csv", [&](std::ostream& to) {
    to << "feature,x,regulariser,weight_norm\n";
    for (const int64_t j : result.order) {
      const auto x = result.x[j].item<double>();
      to << fmt::format("{},{:.9g},{:.9g},{:.9g}\n", csv_quoted(result.feature_names[static_cast<size_t>(j)]),
                        x, std::exp(x), norms[j].item<double>());
    }
  });
  return {"regularisers.npy", "regularisers.csv", "model.npy"};
}

}  // namespace bilevel
