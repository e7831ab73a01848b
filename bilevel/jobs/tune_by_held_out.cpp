// `tune` by the loss of rows that were held out.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/jobs/tune_groups.h"
#include "bilevel/jobs/tune_run.h"
#include "bilevel/tables/table_scores.h"

namespace bilevel {
namespace {

TuneScores scores_of_table(const TableSets& sets, const TunedTable& tuned, TableLoss loss) {
  TuneScores scores;
  for (const auto& [name, set] : {std::pair{"test", &sets.test}, std::pair{"train", &sets.train}}) {
    if (set->size() == 0) continue;
    if (loss == TableLoss::squared) {
      const NumberScores of_set = score_numbers(set->features, set->labels, tuned.weights);
      scores[fmt::format("{}_loss", name)] = of_set.loss;
      scores[fmt::format("{}_rmse", name)] = of_set.rmse;
      scores[fmt::format("{}_r2", name)] = of_set.determination;
      continue;
    }
    const TableScores of_set = score_table(set->features, set->labels, tuned.weights);
    scores[fmt::format("{}_accuracy", name)] = of_set.accuracy;
    scores[fmt::format("{}_loss", name)] = of_set.loss;
  }
  scores["valid_loss"] = tuned.held_out_loss;
  if (loss == TableLoss::squared) scores["valid_rmse"] = std::sqrt(tuned.held_out_loss);
  scores[loss == TableLoss::squared ? "valid_r2" : "valid_accuracy"] = tuned.held_out_score;
  return scores;
}

void add_table_scores(Json& out, const std::string& prefix, const TuneScores& scores,
                      const std::vector<const char*>& measures) {
  for (const char* set : {"test", "train", "valid"}) {
    for (const char* measure : measures) {
      const std::string key = fmt::format("{}_{}", set, measure);
      const auto found = scores.find(key);
      out[prefix + key] = found == scores.end() ? Json(nullptr) : number(found->second);
    }
  }
}

// What was freed, as `returned` calls it.
std::string freed_name(const TuneJobOptions& o) {
  return std::string(o.groups.empty() ? "per_feature" : "per_group") + (o.per_class ? "_and_class" : "");
}

Json held_out_json(const TuneJobResult& result, const TuneJobOptions& o) {
  const TuneTableResult& r = *result.table;
  const auto columns = static_cast<int64_t>(result.feature_names.size());
  const bool is_squared = o.loss == "squared";
  Json out = {{"by", result.by},
              {"loss", o.loss},
              {"features", columns},
              {"nonzeros", result.nonzeros},
              {"classes", result.class_names.size()},
              {"class_names", result.class_names},
              {"train_examples", result.train_examples},
              {"valid_examples", result.valid_examples},
              {"test_examples", result.test_examples},
              {"folds", result.folds == 0 ? Json(nullptr) : Json(result.folds)},
              {"standardized", !o.table.no_standardize}};
  const std::vector<const char*> measures = is_squared ? std::vector<const char*>{"r2", "rmse", "loss"}
                                                       : std::vector<const char*>{"accuracy", "loss"};
  add_table_scores(out, "", result.scores, measures);
  add_table_scores(out, "baseline_", result.baseline, measures);
  out["returned"] = r.kept_single ? "single" : freed_name(o);
  out["single_x"] = number(r.single.logarithms[0].item<double>());
  out["searched_valid_loss"] = r.kept_single ? Json() : number(r.freed.held_out_loss);
  out["gain"] = r.searched ? number(r.gain) : Json();
  out["gain_error"] = r.searched ? number(r.gain_error) : Json();
  out["found_by"] = r.kept_single ? Json() : Json(r.averaged ? "average" : "gradient");
  out["shares"] = Json();
  if (!r.shares.empty()) {
    out["shares"] = {{"single", r.shares[0]}, {"lasso", r.shares[1]}, {"adaptive_lasso", r.shares[2]}};
  }
  out["gain_on"] = r.averaged ? "the rows that were searched on" : "rows that were not searched on";
  add_features(result, r.kept_single ? 0 : static_cast<size_t>(result.top), out);
  out["counts"] = {{"fits", r.counts.fits},
                   {"inner_gradient", r.counts.gradients},
                   {"outer_gradient", r.outer_gradients},
                   {"hessian", r.counts.hessian_products},
                   {"unconverged_fits", r.counts.unconverged},
                   {"unsolved_systems", r.counts.unsolved}};
  out["seconds"] = result.seconds;
  if (!result.folder.empty()) out["folder"] = result.folder;
  return out;
}

}  // namespace

void tune_by_held_out(TuneJobOptions& o, const TableSets& sets, RunContext& context, const JobClock& clock,
                      TuneJobResult& result) {
  const uint64_t seed = o.algorithm.solve.seed;
  const TableLoss loss = o.loss == "squared" ? TableLoss::squared : TableLoss::cross_entropy;
  const TuneTableOptions options{.folds = o.table.folds,
                                 .standardize = !o.table.no_standardize,
                                 .per_class = o.per_class,
                                 .loss = loss,
                                 .seed = seed};
  const bool has_valid = sets.valid.size() > 0;
  FeatureGroups groups;
  if (!o.groups.empty()) groups = feature_groups(o.groups, sets.feature_names);
  const TuneTableData data{
      .train = sets.train, .valid = sets.valid, .classes = sets.classes, .groups = groups.of_column};
  if (!has_valid) refuse_folds(o.table.folds, sets.train.features);
  result.by = tune_ways().table;
  result.train_examples = sets.train.size();
  result.valid_examples = sets.valid.size();
  result.test_examples = sets.test.size();
  result.nonzeros = sets.nonzeros;
  result.class_names = sets.class_names;
  result.feature_names = sets.feature_names;
  result.group_names = groups.names;
  result.folds = has_valid ? 0 : o.table.folds;
  result.top = o.top;
  context.open("tune", seed, OptionsView(o));
  result.folder = context.folder_name();
  context.work([&] {
    try {
      result.table = tune_table(data, options, table_hooks(context, "tune"));
    } catch (const TableInterrupted&) {
      result.end = end_of_interrupted_table(context, result.json);
      return;
    }
    const TunedTable& tuned = result.table->returned();
    result.x = tuned.logarithms;
    result.model = tuned.weights;
    result.order = by_regularizer(result.x);
    result.scores = scores_of_table(sets, tuned, loss);
    result.baseline = scores_of_table(sets, result.table->single, loss);
    result.seconds = clock.seconds();
    result.json = held_out_json(result, o);
    warn_of_unconverged(result.table->counts, context);
    if (context.has_folder()) write_files(result.end, [&] { result.files = write_tune_files(result); });
    context.end(result.end.status, result.end.message, result.json);
  });
}

}  // namespace bilevel
