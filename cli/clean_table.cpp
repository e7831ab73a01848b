#include "cli/clean_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <ostream>
#include <utility>

#include "bilevel/clean/clean.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/run/stop_signal.h"
#include "bilevel/tables/clean_table.h"
#include "bilevel/tables/table_scores.h"
#include "cli/clean_output.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/table_interrupt.h"

namespace bilevel::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t most_shown = 10;
constexpr double nearly_certain =
    1e-12;  // a probability that stays away from 0 and 1 by this has a finite logit

Json model_json(const CleaningSets& sets, const TableModel& model) {
  Json out = {{"test_accuracy", nullptr}, {"test_loss", nullptr}};
  if (sets.test.size() > 0) {
    const TableScores scores = score_table(sets.test.features, sets.test.labels, model.weights);
    out["test_accuracy"] = number(scores.accuracy);
    out["test_loss"] = number(scores.loss);
  }
  out["valid_accuracy"] = number(model.trusted_accuracy);
  out["valid_loss"] = number(model.trusted_loss);
  out["regulariser"] = number(std::exp(model.logarithm));
  out["temperature"] = number(model.temperature);
  return out;
}

Json matrix_json(const Tensor& matrix) {
  Json rows = Json::array();
  for (int64_t k = 0; k < matrix.size(0); ++k) {
    rows.push_back(Json::array());
    for (int64_t l = 0; l < matrix.size(1); ++l) rows.back().push_back(number(matrix[k][l].item<double>()));
  }
  return rows;
}

Json suspect_json(const CleaningSets& sets, const CleanTableResult& r, int64_t i) {
  const auto label = [&](const Tensor& labels) {
    return sets.label_values[static_cast<size_t>(labels[i].item<int64_t>())];
  };
  return {{"index", i},
          {"given_label", label(sets.train.labels)},
          {"suggested_label", label(r.suggested)},
          {"probability_wrong", number(r.wrong[i].item<double>())}};
}

Json report_json(const CleaningSets& sets, const CleanTableCommand& o, const CleanTableResult& r) {
  const Json model = model_json(sets, r.model), baseline = model_json(sets, r.baseline);
  Json out = {{"data", o.data},
              {"by", "noise-model"},
              {"model", "linear"},
              {"train_examples", sets.train.size()},
              {"valid_examples", sets.valid.size()},
              {"test_examples", sets.test.size()},
              {"classes", sets.classes},
              {"folds", o.table.folds},
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
  out["noise_matrix"] = matrix_json(r.noise);
  out["noise_prior"] = number(r.noise_strength);
  out["final_training"] = model;
  out["baseline_training"] = baseline;
  out["counts"] = {{"fits", r.counts.fits},
                   {"inner_gradient", r.counts.gradients},
                   {"unconverged_fits", r.counts.unconverged}};
  out["most_suspect"] = Json::array();
  size_t shown = std::min(most_shown, r.suspects.size());
  if (o.most_suspects > 0) shown = std::min(shown, static_cast<size_t>(o.most_suspects));
  for (size_t i = 0; i < shown; ++i) {
    out["most_suspect"].push_back(suspect_json(sets, r, r.suspects[i]));
  }
  out["warnings"] = r.warnings;
  return out;
}

std::string shown(const Json& value, int digits) {
  return value.is_null() ? "-" : fmt::format("{:.{}f}", value.get<double>(), digits);
}

void print_noise(const CleaningSets& sets, const Tensor& noise) {
  constexpr int64_t most_classes = 12;
  if (sets.classes > most_classes) {
    fmt::print("\nThe noise matrix of {} classes is in noise_matrix.csv.\n", sets.classes);
    return;
  }
  fmt::print("\nEstimated probability of a given label (columns) for each true one (rows)\n{:>12}", "");
  for (const std::string& name : sets.class_names) fmt::print("{:>9}", name);
  for (int64_t k = 0; k < sets.classes; ++k) {
    fmt::print("\n{:>12}", sets.class_names[static_cast<size_t>(k)]);
    for (int64_t l = 0; l < sets.classes; ++l) fmt::print("{:>9.3f}", noise[k][l].item<double>());
  }
  fmt::print("\n");
}

void print_text(const CleaningSets& sets, const CleanTableResult& r, const Json& report) {
  fmt::print("{}: {} training, {} trusted and {} test examples, {} features, {} classes\n",
             report.at("data").get<std::string>(), sets.train.size(), sets.valid.size(), sets.test.size(),
             sets.train.features.columns(), sets.classes);
  fmt::print("{} fits with {} gradients in {:.1f} s; trusted rows are measured held out, in {} folds\n\n",
             r.counts.fits, r.counts.gradients, report.at("seconds").get<double>(),
             report.at("folds").get<int64_t>());
  fmt::print("{:<28}{:>10}{:>12}{:>12}{:>14}\n", "trained on", "test %", "test loss", "trusted %",
             "trusted loss");
  for (const auto& [what, key] :
       {std::pair{r.kept_baseline ? "returned: the baseline" : "probable labels", "final_training"},
        std::pair{"all labels as given", "baseline_training"}}) {
    const Json& model = report.at(key);
    fmt::print("{:<28}{:>10}{:>12}{:>12}{:>14}\n", what, shown(model.at("test_accuracy"), 2),
               shown(model.at("test_loss"), 4), shown(model.at("valid_accuracy"), 2),
               shown(model.at("valid_loss"), 4));
  }
  fmt::print(
      "\nloss of held-out labels: {:.4f} with the noise model, {:.4f} with every label taken as right\n",
      r.loss, r.baseline_loss);
  if (r.kept_baseline) {
    fmt::print("\nThe noise model is not used, and no label is suspect.\n");
    return;
  }
  print_noise(sets, r.noise);
  fmt::print("\nabout {:.0f} of {} labels are wrong; {} are suspect (probability {:.2f} and above)\n",
             r.expected_wrong, sets.train.size(), r.suspects.size(), r.threshold);
  if (!r.suspects.empty()) {
    fmt::print("{:>9}{:>16}{:>16}{:>20}\n", "index", "given label", "suggested", "probability wrong");
  }
  for (const Json& one : report.at("most_suspect")) {
    fmt::print("{:>9}{:>16}{:>16}{:>20.4f}\n", one.at("index").get<int64_t>(),
               one.at("given_label").get<int64_t>(), one.at("suggested_label").get<int64_t>(),
               one.at("probability_wrong").get<double>());
  }
}

// As the other way has it, so that files and reports are the same: the weight of an example is the
// probability that its label is right.
CleanReport as_report(const CleanTableResult& r, int64_t most_suspects) {
  CleanReport report;
  report.finished = true;
  report.weights = r.kept_baseline ? at::ones_like(r.wrong) : 1 - r.wrong;
  report.x = report.weights.clamp(nearly_certain, 1 - nearly_certain).logit();
  report.suggested = r.suggested;
  report.suspects = r.suspects;
  if (most_suspects > 0 && report.suspects.size() > static_cast<size_t>(most_suspects)) {
    report.suspects.resize(static_cast<size_t>(most_suspects));
  }
  report.flagged = static_cast<int64_t>(r.suspects.size());
  report.kept_baseline = r.kept_baseline;
  return report;
}

void save(const CleaningSets& sets, const CleanTableCommand& o, const CleanTableResult& r,
          const std::string& folder) {
  const CleanOptions unused;
  const CleanReport report = as_report(r, o.most_suspects);
  CleanOutput output{.sets = sets, .report = report, .options = unused};
  output.folder = folder;
  write_clean(output);
  const std::filesystem::path path(folder);
  write_npy(path / "model.npy", r.model.weights);
  write_file(path / "noise_matrix.csv", [&](std::ostream& to) {
    to << "true_label";
    for (const int64_t label : sets.label_values) to << ',' << label;
    to << '\n';
    for (int64_t k = 0; k < sets.classes; ++k) {
      to << sets.label_values[static_cast<size_t>(k)];
      for (int64_t l = 0; l < sets.classes; ++l) to << fmt::format(",{:.6g}", r.noise[k][l].item<double>());
      to << '\n';
    }
  });
}

}  // namespace

void run_clean_table(CLI::App& command, const CleanTableCommand& o, const CleaningSets& sets,
                     int& exit_code) {
  const auto begin = Clock::now();
  const CleanTableOptions options{
      .folds = o.table.folds, .standardize = !o.table.no_standardize, .seed = o.seed};
  const CleanTableData data{
      .train = sets.train.features,
      .given = sets.train.labels,
      .trusted = sets.valid.features,
      .trusted_labels = sets.valid.size() > 0 ? sets.valid.labels : at::empty({0}, at::kLong),
      .classes = sets.classes};
  refuse_folds(o.table.folds, sets.train.features);
  const StopSignal on_signal;
  RunFolder folder = open_run(command, o.run, o.seed);
  work_in(folder, [&] {
    Progress progress(o.common);
    CleanTableResult result;
    try {
      result = clean_table(data, options, interruptible(progress, "clean"));
    } catch (const TableInterrupted&) {
      progress.clear();
      exit_code = end_interrupted(command, folder, o.common);
      return;
    }
    progress.clear();
    Json report = report_json(sets, o, result);
    report["seconds"] = std::chrono::duration<double>(Clock::now() - begin).count();
    report["folder"] = folder.path();
    if (o.common.json) {
      fmt::print("{}\n", report.dump());
    } else {
      print_text(sets, result, report);
    }
    if (says(o.common, LogLevel::warning)) {
      for (const std::string& warning : result.warnings) fmt::print(stderr, "warning: {}\n", warning);
    }
    warn_of_unconverged(result.counts, o.common);
    save(sets, o, result, folder.path());  // last: a full disk must not cost the answer
    folder.end(RunStatus::finished, "", report);
    if (!o.common.json) {
      fmt::print("written to {}: weights.csv, suspects.csv, noise_matrix.csv, model.npy, summary.json\n",
                 folder.path());
    }
  });
}

}  // namespace bilevel::cli
