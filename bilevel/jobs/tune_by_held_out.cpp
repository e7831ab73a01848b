// `tune` by the loss of rows that were held out.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "bilevel/jobs/tune_run.h"
#include "bilevel/tables/table_scores.h"

namespace bilevel {
namespace {

TuneScores scores_of_table(const TableSets& sets, const TunedTable& tuned) {
  TuneScores scores;
  for (const auto& [name, set] : {std::pair{"test", &sets.test}, std::pair{"train", &sets.train}}) {
    if (set->size() == 0) continue;
    const TableScores of_set = score_table(set->features, set->labels, tuned.weights);
    scores[fmt::format("{}_accuracy", name)] = of_set.accuracy;
    scores[fmt::format("{}_loss", name)] = of_set.loss;
  }
  scores["valid_accuracy"] = tuned.held_out_accuracy;
  scores["valid_loss"] = tuned.held_out_loss;
  return scores;
}

void add_table_scores(Json& out, const std::string& prefix, const TuneScores& scores) {
  for (const char* key :
       {"test_accuracy", "test_loss", "train_accuracy", "train_loss", "valid_accuracy", "valid_loss"}) {
    const auto found = scores.find(key);
    out[prefix + key] = found == scores.end() ? Json(nullptr) : number(found->second);
  }
}

Json held_out_json(const TuneJobResult& result, const TuneJobOptions& o) {
  const TuneTableResult& r = *result.table;
  const auto columns = static_cast<int64_t>(result.feature_names.size());
  Json out = {{"by", result.by},
              {"features", columns},
              {"nonzeros", result.nonzeros},
              {"classes", result.class_names.size()},
              {"class_names", result.class_names},
              {"train_examples", result.train_examples},
              {"valid_examples", result.valid_examples},
              {"test_examples", result.test_examples},
              {"folds", result.folds == 0 ? Json(nullptr) : Json(result.folds)},
              {"standardized", !o.table.no_standardize}};
  add_table_scores(out, "", result.scores);
  add_table_scores(out, "baseline_", result.baseline);
  out["returned"] = r.kept_single ? "single" : "per_feature";
  out["single_x"] = number(r.single.logarithms[0].item<double>());
  const bool is_searched = columns > 1;
  out["searched_valid_loss"] = is_searched ? number(r.per_column.held_out_loss) : Json();
  out["gain"] = is_searched ? number(r.gain) : Json();
  out["gain_error"] = is_searched ? number(r.gain_error) : Json();
  out["gain_on"] = r.nested ? "rows that were not searched on" : "the rows that were searched on";
  add_features(result, r.kept_single ? 0 : static_cast<size_t>(result.top), out);
  out["counts"] = {{"fits", r.counts.fits},
                   {"inner_gradient", r.counts.gradients},
                   {"outer_gradient", r.outer_gradients},
                   {"hessian", r.counts.hessian_products},
                   {"unconverged_fits", r.counts.unconverged}};
  out["seconds"] = result.seconds;
  if (!result.folder.empty()) out["folder"] = result.folder;
  return out;
}

}  // namespace

void tune_by_held_out(TuneJobOptions& o, const TableSets& sets, RunContext& context, const JobClock& clock,
                      TuneJobResult& result) {
  const uint64_t seed = o.algorithm.solve.seed;
  const TuneTableOptions options{
      .folds = o.table.folds, .standardize = !o.table.no_standardize, .seed = seed};
  const bool has_valid = sets.valid.size() > 0;
  const TuneTableData data{.train = sets.train.features,
                           .labels = sets.train.labels,
                           .valid = sets.valid.features,
                           .valid_labels = has_valid ? sets.valid.labels : at::empty({0}, at::kLong),
                           .classes = sets.classes};
  if (!has_valid) refuse_folds(o.table.folds, sets.train.features);
  result.by = tune_ways().table;
  result.train_examples = sets.train.size();
  result.valid_examples = sets.valid.size();
  result.test_examples = sets.test.size();
  result.nonzeros = sets.nonzeros;
  result.class_names = sets.class_names;
  result.feature_names = sets.feature_names;
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
    result.scores = scores_of_table(sets, tuned);
    result.baseline = scores_of_table(sets, result.table->single);
    result.seconds = clock.seconds();
    result.json = held_out_json(result, o);
    warn_of_unconverged(result.table->counts, context);
    if (context.has_folder()) write_files(result.end, [&] { result.files = write_tune_files(result); });
    context.end(result.end.status, result.end.message, result.json);
  });
}

}  // namespace bilevel
