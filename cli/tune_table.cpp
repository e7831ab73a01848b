#include "cli/tune_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/run/stop_signal.h"
#include "bilevel/tables/table_scores.h"
#include "bilevel/tables/tune_table.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/table_interrupt.h"

namespace bilevel::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<int64_t> by_logarithm(const Tensor& logarithms) {
  const double* value = logarithms.data_ptr<double>();
  std::vector<int64_t> order(static_cast<size_t>(logarithms.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value[a] > value[b]; });
  return order;
}

Json feature_json(const TableSets& sets, const Tensor& logarithms, int64_t j) {
  const double x = logarithms[j].item<double>();
  return {{"name", sets.feature_names[static_cast<size_t>(j)]},
          {"column", j},
          {"x", number(x)},
          {"regulariser", number(std::exp(x))}};
}

void add_scores(Json& out, const std::string& prefix, const TableSets& sets, const TunedTable& tuned) {
  for (const auto& [name, set] : {std::pair{"test", &sets.test}, std::pair{"train", &sets.train}}) {
    const bool there = set->size() > 0;
    const TableScores scores = there ? score_table(set->features, set->labels, tuned.weights) : TableScores{};
    out[fmt::format("{}{}_accuracy", prefix, name)] = there ? number(scores.accuracy) : Json(nullptr);
    out[fmt::format("{}{}_loss", prefix, name)] = there ? number(scores.loss) : Json(nullptr);
  }
  out[prefix + "valid_accuracy"] = number(tuned.held_out_accuracy);
  out[prefix + "valid_loss"] = number(tuned.held_out_loss);
}

Json report_json(const TableSets& sets, const TuneTableCommand& o, const TuneTableResult& r) {
  const TunedTable& tuned = r.returned();
  Json out = {{"by", "held-out"},
              {"features", sets.train.features.columns()},
              {"nonzeros", sets.nonzeros},
              {"classes", sets.classes},
              {"class_names", sets.class_names},
              {"train_examples", sets.train.size()},
              {"valid_examples", sets.valid.size()},
              {"test_examples", sets.test.size()},
              {"folds", sets.valid.size() > 0 ? Json(nullptr) : Json(o.table.folds)},
              {"standardized", !o.table.no_standardize}};
  add_scores(out, "", sets, tuned);
  add_scores(out, "baseline_", sets, r.single);
  out["returned"] = r.kept_single ? "single" : "per_feature";
  out["single_x"] = number(r.single.logarithms[0].item<double>());
  const bool is_searched = sets.train.features.columns() > 1;
  out["searched_valid_loss"] = is_searched ? number(r.per_column.held_out_loss) : Json();
  out["gain"] = is_searched ? number(r.gain) : Json();
  out["gain_error"] = is_searched ? number(r.gain_error) : Json();
  out["gain_on"] = r.nested ? "rows that were not searched on" : "the rows that were searched on";
  const std::vector<int64_t> order = by_logarithm(tuned.logarithms);
  out["most_regularised"] = out["least_regularised"] = Json::array();
  const size_t count = r.kept_single ? 0 : std::min(static_cast<size_t>(o.top), order.size());
  for (size_t i = 0; i < count; ++i) {
    out["most_regularised"].push_back(feature_json(sets, tuned.logarithms, order[i]));
    out["least_regularised"].push_back(feature_json(sets, tuned.logarithms, order[order.size() - 1 - i]));
  }
  out["counts"] = {{"fits", r.counts.fits},
                   {"inner_gradient", r.counts.gradients},
                   {"outer_gradient", r.outer_gradients},
                   {"hessian", r.counts.hessian_products},
                   {"unconverged_fits", r.counts.unconverged}};
  return out;
}

// Whether one regulariser per feature is worth it, in a sentence.
std::string verdict(const Json& r) {
  if (r.at("gain").is_null()) return "There is one feature, and so one regulariser.";
  const Json& error = r.at("gain_error");  // of a single row there is none
  const std::string measured =
      fmt::format("{:+.4f} +- {}", r.at("gain").get<double>(),
                  error.is_null() ? "?" : fmt::format("{:.4f}", error.get<double>()));
  const std::string on = r.at("gain_on").get<std::string>();
  if (r.at("returned") == "per_feature") {
    return fmt::format("One regulariser per feature is returned: it gains {} in the loss of {}.", measured,
                       on);
  }
  return fmt::format(
      "One regulariser for all features is returned: one per feature gains {} in the loss of {}, which is "
      "less "
      "than its standard error.",
      measured, on);
}

void print_features(const char* title, const Json& rows) {
  if (rows.empty()) return;
  fmt::print("\n{}\n", title);
  for (const Json& row : rows) {
    fmt::print("  {:<32} x = {:>8.3f}   exp(x) = {:.4g}\n", row.at("name").get<std::string>(),
               row.at("x").get<double>(), row.at("regulariser").get<double>());
  }
}

void print_text(const Json& r) {
  const int64_t valid = r.at("valid_examples").get<int64_t>();
  fmt::print("{} training, {} and {} test examples; {} features, {} classes\n",
             r.at("train_examples").get<int64_t>(),
             valid > 0 ? fmt::format("{} validation", valid)
                       : fmt::format("held out in {} folds,", r.at("folds").get<int64_t>()),
             r.at("test_examples").get<int64_t>(), r.at("features").get<int64_t>(),
             r.at("classes").get<int64_t>());
  const Json& counts = r.at("counts");
  fmt::print("{} fits with {} gradients and {} Hessian products in {:.1f} s\n\n",
             counts.at("fits").get<int64_t>(), counts.at("inner_gradient").get<int64_t>(),
             counts.at("hessian").get<int64_t>(), r.at("seconds").get<double>());
  fmt::print("{:<12}{:>24}{:>24}\n{:<12}{:>12}{:>12}{:>12}{:>12}\n", "", "one regulariser", "returned", "",
             "loss", "accuracy", "loss", "accuracy");
  for (const auto& [set, title] :
       {std::pair{"train", "train"}, std::pair{"valid", "held out"}, std::pair{"test", "test"}}) {
    const auto value = [&](const std::string& prefix, const char* what) {
      return r.at(fmt::format("{}{}_{}", prefix, set, what)).get<double>();
    };
    if (r.at(fmt::format("{}_loss", set)).is_null()) continue;
    fmt::print("{:<12}{:>12.4f}{:>12.2f}{:>12.4f}{:>12.2f}\n", title, value("baseline_", "loss"),
               value("baseline_", "accuracy"), value("", "loss"), value("", "accuracy"));
  }
  fmt::print("\n{}\n", verdict(r));
  print_features("most regularised", r.at("most_regularised"));
  print_features("least regularised", r.at("least_regularised"));
}

void save(const TableSets& sets, const TunedTable& tuned, const std::string& folder) {
  const std::filesystem::path path(folder);
  const Tensor norms = tuned.weights.norm(2, 1);
  write_npy(path / "regularisers.npy", tuned.logarithms.exp());
  write_npy(path / "model.npy", tuned.weights);
  write_file(path / "regularisers.csv", [&](std::ostream& to) {
    to << "feature,x,regulariser,weight_norm\n";
    for (const int64_t j : by_logarithm(tuned.logarithms)) {
      const double x = tuned.logarithms[j].item<double>();
      to << fmt::format("{},{:.9g},{:.9g},{:.9g}\n", csv_quoted(sets.feature_names[static_cast<size_t>(j)]),
                        x, std::exp(x), norms[j].item<double>());
    }
  });
}

}  // namespace

void run_tune_table(CLI::App& command, const TuneTableCommand& o, const TableSets& sets, int& exit_code) {
  const auto begin = Clock::now();
  const TuneTableOptions options{
      .folds = o.table.folds, .standardize = !o.table.no_standardize, .seed = o.seed};
  const Tensor none = at::empty({0}, at::kLong);
  const TuneTableData data{.train = sets.train.features,
                           .labels = sets.train.labels,
                           .valid = sets.valid.features,
                           .valid_labels = sets.valid.size() > 0 ? sets.valid.labels : none,
                           .classes = sets.classes};
  if (sets.valid.size() == 0) refuse_folds(o.table.folds, sets.train.features);
  const StopSignal on_signal;
  RunFolder folder = open_run(command, o.run, o.seed);
  work_in(folder, [&] {
    Progress progress(o.common);
    TuneTableResult result;
    try {
      result = tune_table(data, options, interruptible(progress, "tune"));
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
      print_text(report);
    }
    warn_of_unconverged(result.counts, o.common);
    save(sets, result.returned(), folder.path());  // last: a full disk must not cost the answer
    folder.end(RunStatus::finished, "", report);
    if (!o.common.json) {
      fmt::print("\nwritten to {}: regularisers.npy, regularisers.csv, model.npy, summary.json\n",
                 folder.path());
    }
  });
}

}  // namespace bilevel::cli
