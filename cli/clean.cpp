// `bilevel clean`: finds bad labels in a training set with the help of a clean validation set, or of a noise
// model.

#include "bilevel/jobs/clean.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "cli/job_command.h"
#include "cli/solve_text.h"

namespace bilevel::cli {
namespace {

constexpr size_t shown_suspects = 10;

std::string shown(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

// ---- by the noise model ----

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

void print_table_model(const char* what, const TableModel& model, const std::optional<TableScores>& test) {
  fmt::print("{:<28}{:>10}{:>12}{:>12}{:>14}\n", what, test ? shown(test->accuracy, 2) : "-",
             test ? shown(test->loss, 4) : "-", shown(model.trusted_accuracy, 2),
             shown(model.trusted_loss, 4));
}

void print_clean_table(const CleanJobResult& result) {
  const CleaningSets& sets = result.sets;
  const CleanTableResult& r = *result.table;
  fmt::print("{}: {} training, {} trusted and {} test examples, {} features, {} classes\n", result.data,
             sets.train.size(), sets.valid.size(), sets.test.size(), sets.train.features.columns(),
             sets.classes);
  fmt::print("{} fits with {} gradients in {:.1f} s; trusted rows are measured held out, in {} folds\n\n",
             r.counts.fits, r.counts.gradients, result.seconds, result.folds);
  fmt::print("{:<28}{:>10}{:>12}{:>12}{:>14}\n", "trained on", "test %", "test loss", "trusted %",
             "trusted loss");
  print_table_model(r.kept_baseline ? "returned: the baseline" : "probable labels", r.model, result.test);
  print_table_model("all labels as given", r.baseline, result.baseline);
  fmt::print(
      "\nloss of held-out labels: {:.4f} with the noise model, {:.4f} if every label is taken as right\n",
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
  const auto label = [&](const Tensor& of, int64_t i) {
    return sets.class_names[static_cast<size_t>(of[i].item<int64_t>())];
  };
  for (size_t at = 0; at < std::min(shown_suspects, result.clean.suspects.size()); ++at) {
    const int64_t i = result.clean.suspects[at];
    fmt::print("{:>9}{:>16}{:>16}{:>20.4f}\n", row_in_file(sets.train_rows, i), label(sets.train.labels, i),
               label(r.suggested, i), r.wrong[i].item<double>());
  }
}

// ---- by weights ----

std::string percent_text(double value) { return value < 0 ? "-" : fmt::format("{:.2f}", value); }

void print_detection(const char* what, const Detection& d) {
  fmt::print("{:<26}{:>10.3f}{:>11.3f}{:>9.3f}   {} flagged, {} bad, {} both\n", what, d.f1(), d.precision(),
             d.recall(), d.flagged, d.bad, d.both);
}

void print_suspects(const CleanJobResult& result) {
  const CleanResult& r = result.clean;
  const double threshold = result.options.threshold;
  fmt::print("{} of {} examples are suspect (x < {}, weight < {:.3f})\n", r.flagged, result.sets.train.size(),
             threshold, 1 / (1 + std::exp(-threshold)));
  if (!r.suspects.empty()) {
    fmt::print("{:>9}{:>16}{:>16}{:>10}{:>9}\n", "index", "given label", "suggested", "weight", "x");
  }
  const auto name = [&](const Tensor& of, int64_t i) {
    return result.sets.class_names[static_cast<size_t>(of[i].item<int64_t>())];
  };
  for (size_t at = 0; at < std::min(shown_suspects, r.suspects.size()); ++at) {
    const int64_t i = r.suspects[at];
    fmt::print("{:>9}{:>16}{:>16}{:>10.2g}{:>9.2f}\n", row_in_file(result.sets.train_rows, i),
               name(result.sets.train.labels, i), name(r.suggested, i), r.weights[i].item<double>(),
               r.x[i].item<double>());
  }
}

void print_clean_weights(const CleanJobResult& result) {
  const CleanResult& r = result.clean;
  const CleaningSets& sets = result.sets;
  fmt::print("{}: {} training, {} validation and {} test examples, {} features, {} classes\n", result.data,
             sets.train.size(), sets.valid.size(), sets.test.size(), sets.train.features.columns(),
             sets.classes);
  const InnerOptions& inner = result.options.settings.inner;
  fmt::print(
      "{}, {} model: {} iterations of {} {} steps at rate {:.4g}, ending at |grad_w g| = {:.2e} of {:.2e} at "
      "the start\n\n",
      r.solve.algorithm, result.model, r.solve.state.iteration, inner.steps, inner.optimizer, inner.rate,
      r.inner_gradient_norm, r.first_gradient_norm);
  fmt::print("{:<26}{:>10}{:>11}{:>13}{:>9}\n", "trained on", "test %", "valid %", "valid loss", "steps");
  for (const auto& [what, model] :
       {std::pair{r.kept_baseline ? "returned: the baseline" : "the learned weights", &r.cleaned},
        std::pair{"all labels alike", &r.baseline}}) {
    fmt::print("{:<26}{:>10}{:>11.2f}{:>13.4f}{:>9}\n", what, percent_text(model->test_accuracy),
               model->valid_accuracy, model->valid_loss, model->steps);
  }
  fmt::print("\n");
  if (r.wrong) {
    fmt::print("{:<26}{:>10}{:>11}{:>9}\n", fmt::format("x < {}", result.options.threshold), "F1",
               "precision", "recall");
    print_detection("labels that are wrong", *r.wrong);
    print_detection("labels that were replaced", *r.replaced);
    fmt::print("\n");
  }
  print_suspects(result);
  const OracleCounts& c = r.counts;
  fmt::print("\n{} gradients of g, {} of f, {} Hessian and {} cross products; {:.1f} s in all\n",
             c.inner_gradient, c.outer_gradient, c.hessian, c.cross, result.seconds);
}

void print_clean(const CleanJobResult& result) {
  if (result.table) {
    print_clean_table(result);
  } else if (result.by == clean_ways().algorithm) {
    if (result.clean.finished) print_clean_weights(result);
    print_linear_solves(result.clean.solve);
    print_failures(result.clean.solve);
  }
}

}  // namespace

void add_clean_command(CLI::App& app, int& exit_code) {
  add_job<CleanJobOptions>(
      app, exit_code,
      {"clean", "Find bad labels, with or without a clean validation set",
       "One weight per training example is learned so that a model trained on the weighted set does well on\n"
       "the validation set; examples that end with almost no weight are suspect. Files may be IDX, NPY,\n"
       "CSV, TSV or svmlight, plain or .gz (except NPY); bytes are scaled to [0, 1].\n"
       "Defaults: T = 100 Nesterov steps at 1/L, L the largest curvature at the start; Adam at 0.2, 100\n"
       "iterations; float (--dtype double works). cnn: double-loop with truncated, T = 5 at rate 0.02, "
       "batches of\n"
       "256, 200 iterations.\n"
       "A table is cleaned by a model of how its labels go wrong, which uses none of these defaults\n"
       "(docs/tables.md).\n"
       "Examples:\n"
       "  bilevel clean --train x.npy --train-labels y.npy --valid xv.npy --valid-labels yv.npy --out "
       "cleaned\n"
       "  bilevel clean --train noisy.csv --valid clean.csv --label-column class\n"
       "  bilevel clean --data fashion-mnist --corruption 0.5 --train-size 5000 --valid-size 5000 --json\n"
       "  bilevel clean --resume cleaned"},
      [](const CleanJobOptions& options, RunContext& context) { return run_clean(options, context); },
      print_clean);
}

}  // namespace bilevel::cli
