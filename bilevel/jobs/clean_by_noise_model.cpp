// `clean` with a model of how the labels of a table go wrong.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <ostream>
#include <utility>

#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/jobs/clean_run.h"

namespace bilevel {
namespace {

constexpr size_t most_suspects_of_table = 10;
constexpr double nearly_certain =
    1e-12;  // a probability that stays away from 0 and 1 by this has a finite logit

Json noise_model_json(const TableModel& model, const std::optional<TableScores>& test) {
  Json out = {{"test_accuracy", nullptr}, {"test_loss", nullptr}};
  if (test) {
    out["test_accuracy"] = number(test->accuracy);
    out["test_loss"] = number(test->loss);
  }
  out["valid_accuracy"] = number(model.trusted_accuracy);
  out["valid_loss"] = number(model.trusted_loss);
  out["regulariser"] = number(std::exp(model.logarithm));
  out["temperature"] = number(model.temperature);
  return out;
}

Json noise_matrix_json(const Tensor& matrix) {
  Json rows = Json::array();
  for (int64_t k = 0; k < matrix.size(0); ++k) {
    rows.push_back(Json::array());
    for (int64_t l = 0; l < matrix.size(1); ++l) rows.back().push_back(number(matrix[k][l].item<double>()));
  }
  return rows;
}

Json table_suspect_json(const CleaningSets& sets, const CleanTableResult& r, int64_t i) {
  const auto label = [&](const Tensor& labels) { return label_json(sets, labels[i].item<int64_t>()); };
  return {{"index", row_in_file(sets.train_rows, i)},
          {"given_label", label(sets.train.labels)},
          {"suggested_label", label(r.suggested)},
          {"probability_wrong", number(r.wrong[i].item<double>())}};
}

Json noise_report_json(const CleanJobResult& result, const CleanJobOptions& o) {
  const CleaningSets& sets = result.sets;
  const CleanTableResult& r = *result.table;
  const Json model = noise_model_json(r.model, result.test);
  const Json baseline = noise_model_json(r.baseline, result.baseline);
  Json out = {{"data", result.data},
              {"by", result.by},
              {"model", result.model},
              {"train_examples", sets.train.size()},
              {"valid_examples", sets.valid.size()},
              {"test_examples", sets.test.size()},
              {"classes", sets.classes},
              {"class_names", sets.class_names},
              {"folds", result.folds},
              {"standardized", !o.table.no_standardize}};
  for (const char* key : {"test_accuracy", "test_loss", "valid_accuracy", "valid_loss"}) {
    out[key] = model.at(key);
    out[std::string("baseline_") + key] = baseline.at(key);
  }
  out["returned"] = r.kept_baseline ? "baseline" : "learned";
  out["held_out_loss"] = number(r.loss);
  out["baseline_held_out_loss"] = number(r.baseline_loss);
  out["flagged"] = r.suspects.size();
  out["threshold"] = r.kept_baseline ? Json() : number(r.threshold);
  out["expected_wrong"] = number(r.expected_wrong);
  out["noise_matrix"] = noise_matrix_json(r.noise);
  out["noise_prior"] = number(r.noise_strength);
  out["final_training"] = model;
  out["baseline_training"] = baseline;
  out["counts"] = {{"fits", r.counts.fits},
                   {"inner_gradient", r.counts.gradients},
                   {"unconverged_fits", r.counts.unconverged}};
  out["most_suspect"] = Json::array();
  const size_t listed = std::min(most_suspects_of_table, result.clean.suspects.size());
  for (size_t i = 0; i < listed; ++i) {
    out["most_suspect"].push_back(table_suspect_json(sets, r, result.clean.suspects[i]));
  }
  out["warnings"] = r.warnings;
  out["seconds"] = result.seconds;
  if (!result.folder.empty()) out["folder"] = result.folder;
  return out;
}

// As the other way has it, so that files and reports are the same: the weight of an example is the
// probability that its label is right.
CleanResult as_clean_result(const CleanTableResult& r, int64_t most_suspects) {
  CleanResult result;
  result.finished = true;
  result.weights = 1 - r.wrong;
  result.x = result.weights.clamp(nearly_certain, 1 - nearly_certain).logit();
  result.suggested = r.suggested;
  result.suspects = r.suspects;
  if (most_suspects > 0 && result.suspects.size() > static_cast<size_t>(most_suspects)) {
    result.suspects.resize(static_cast<size_t>(most_suspects));
  }
  result.flagged = static_cast<int64_t>(r.suspects.size());
  result.kept_baseline = r.kept_baseline;
  return result;
}

std::vector<std::string> write_noise_model(const CleanJobResult& result) {
  const CleaningSets& sets = result.sets;
  const CleanTableResult& r = *result.table;
  std::vector<std::string> names = write_clean_files(sets, result.clean, result.folder);
  const std::filesystem::path path(result.folder);
  write_npy(path / "model.npy", r.model.weights);
  write_saved_model(result.folder, saved_cleaning(sets, SavedModel::Kind::linear, true));
  write_file(path / "noise_matrix.csv", [&](std::ostream& to) {
    to << "true_label";
    for (int64_t k = 0; k < sets.classes; ++k) to << ',' << label_field(sets, k);
    to << '\n';
    for (int64_t k = 0; k < sets.classes; ++k) {
      to << label_field(sets, k);
      for (int64_t l = 0; l < sets.classes; ++l) to << fmt::format(",{:.6g}", r.noise[k][l].item<double>());
      to << '\n';
    }
  });
  names.insert(names.end(), {"noise_matrix.csv", "model.npy", "model.json"});
  return names;
}

}  // namespace

void clean_by_noise_model(CleanJobOptions& o, RunContext& context, const JobClock& clock,
                          CleanJobResult& result) {
  const CleaningSets& sets = result.sets;
  const uint64_t seed = o.algorithm.solve.seed;
  const CleanTableOptions options{
      .folds = o.table.folds, .standardize = !o.table.no_standardize, .seed = seed};
  const CleanTableData data{.train = sets.train, .trusted = sets.valid, .classes = sets.classes};
  refuse_folds(options.folds, sets.train.features);
  result.folds = options.folds;
  context.open("clean", seed, OptionsView(o));
  result.folder = context.folder_name();
  context.work([&] {
    try {
      result.table = clean_table(data, options, table_hooks(context, "clean"));
    } catch (const TableInterrupted&) {
      result.end = end_of_interrupted_table(context, result.json);
      return;
    }
    const CleanTableResult& found = *result.table;
    result.clean = as_clean_result(found, o.most_suspects);
    if (sets.test.size() > 0) {
      result.test = score_table(sets.test.features, sets.test.labels, found.model.weights);
      result.baseline = score_table(sets.test.features, sets.test.labels, found.baseline.weights);
    }
    result.seconds = clock.seconds();
    result.json = noise_report_json(result, o);
    for (const std::string& warning : found.warnings) context.warning(warning);
    warn_of_unconverged(found.counts, context);
    if (context.has_folder()) write_files(result.end, [&] { result.files = write_noise_model(result); });
    context.end(result.end.status, result.end.message, result.json);
  });
}

}  // namespace bilevel
