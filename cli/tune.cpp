// `bilevel tune`: one regulariser per feature for (sparse) softmax regression, found on validation examples.

#include "bilevel/jobs/tune.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/job_command.h"
#include "cli/solve_text.h"

namespace bilevel::cli {
namespace {

void print_features(const TuneJobResult& result) {
  const size_t count = std::min(static_cast<size_t>(result.top), result.order.size());
  if (count == 0) return;
  const std::vector<TunePenalty> ordered = ordered_penalties(result);
  const auto print = [&](const char* title, const auto& position) {
    fmt::print("\n{}\n", title);
    for (size_t i = 0; i < count; ++i) {
      const TunePenalty& p = ordered[position(i)];
      const std::string name =
          p.class_name.empty() ? p.feature : fmt::format("{}, class {}", p.feature, p.class_name);
      fmt::print("  {:<32} x = {:>8.3f}   exp(x) = {:.4g}\n", name, p.x, std::exp(p.x));
    }
  };
  print("most regularised", [](size_t i) { return i; });
  print("least regularised", [&](size_t i) { return ordered.size() - 1 - i; });
}

void print_scores(const TuneJobResult& result, const char* baseline, const char* returned,
                  const char* held_out) {
  const bool is_squared = result.scores.contains("train_rmse");
  const char *first = is_squared ? "rmse" : "loss", *second = is_squared ? "r2" : "accuracy";
  const char* row = is_squared ? "{:<12}{:>12.5g}{:>12.4f}{:>12.5g}{:>12.4f}\n"
                               : "{:<12}{:>12.4f}{:>12.2f}{:>12.4f}{:>12.2f}\n";
  fmt::print("{:<12}{:>24}{:>24}\n{:<12}{:>12}{:>12}{:>12}{:>12}\n", "", baseline, returned, "", first,
             second, first, second);
  for (const auto& [set, title] :
       {std::pair{"train", "train"}, std::pair{"valid", held_out}, std::pair{"test", "test"}}) {
    const std::string one = fmt::format("{}_{}", set, first), other = fmt::format("{}_{}", set, second);
    if (!result.scores.contains(one)) continue;
    fmt::print(fmt::runtime(row), title, result.baseline.at(one), result.baseline.at(other),
               result.scores.at(one), result.scores.at(other));
  }
}

// Whether regularisers of their own are worth it, in a sentence.
std::string verdict(const TuneJobResult& result) {
  const TuneTableResult& r = *result.table;
  const std::string what =
      fmt::format("{}{}", result.group_names.empty() ? "feature" : "group", r.by_class ? " and class" : "");
  if (!r.searched) return fmt::format("There is one {}, and so one regulariser.", what);
  // Of a single row there is no error.
  const std::string measured = fmt::format(
      "{:+.4f} +- {}", r.gain, std::isfinite(r.gain_error) ? fmt::format("{:.4f}", r.gain_error) : "?");
  const std::string on = "rows that the search did not use";
  if (r.averaged) {
    return fmt::format(
        "The mean of three models is returned, each weighted by how well it predicts held-out rows: one "
        "regulariser {:.0f} %, the lasso {:.0f} %, the adaptive lasso {:.0f} %. It gains {} in the loss of "
        "held-out rows.",
        100 * r.shares[0], 100 * r.shares[1], 100 * r.shares[2], measured);
  }
  if (!r.kept_single) {
    return fmt::format("One regulariser per {} is returned: it gains {} in the loss of {}.", what, measured,
                       on);
  }
  return fmt::format(
      "One regulariser for all features is returned: one per {} gains {} in the loss of {}, which is less "
      "than two standard errors.",
      what, measured, on);
}

void print_held_out(const TuneJobResult& result) {
  const TuneTableResult& r = *result.table;
  fmt::print("{} training, {} and {} test examples; {} features{}\n", result.train_examples,
             result.valid_examples > 0 ? fmt::format("{} validation", result.valid_examples)
                                       : fmt::format("held out in {} folds,", result.folds),
             result.test_examples, result.feature_names.size(),
             result.class_names.empty() ? std::string(", squared loss")
                                        : fmt::format(", {} classes", result.class_names.size()));
  fmt::print("{} fits with {} gradients and {} Hessian products in {:.1f} s\n\n", r.counts.fits,
             r.counts.gradients, r.counts.hessian_products, result.seconds);
  print_scores(result, "one regulariser", "returned", "held out");
  fmt::print("\n{}\n", verdict(result));
  if (!r.kept_single) print_features(result);
  fmt::print("\n");
}

void print_found_point(const TuneJobResult& result) {
  const TuneSearch& search = *result.search;
  const OracleCounts& counts = search.summary.counts;
  fmt::print(
      "{} training, {} validation and {} test examples; {} features, {} classes, {} training non-zeros\n",
      result.train_examples, result.valid_examples, result.test_examples, result.feature_names.size(),
      result.class_names.size(), result.nonzeros);
  fmt::print(
      "{}: {} iterations in {:.1f} s ({} inner and {} outer gradients, {} Hessian and {} cross products); "
      "inner rate {:.4g}, outer rate {:.4g} of {}\n\n",
      search.summary.algorithm, search.summary.state.iteration, search.summary.seconds, counts.inner_gradient,
      counts.outer_gradient, counts.hessian, counts.cross, search.inner_rate, search.settings.outer.rate,
      search.settings.outer.optimizer);
  print_scores(result, "untuned (x = 0)", "one per feature", "valid");
  if (search.kept_untuned) fmt::print("\nThe untuned model is returned.\n");
  print_features(result);
}

void print_tune(const TuneJobResult& result) {
  if (result.table) {
    print_held_out(result);
  } else if (result.search) {
    const bool has_answer = result.x.defined();
    if (has_answer) print_found_point(result);
    print_linear_solves(result.search->summary);
    print_failures(result.search->summary);
    if (has_answer) fmt::print("\n");
  }
}

}  // namespace

void add_tune_command(CLI::App& app, int& exit_code) {
  add_job<TuneJobOptions>(
      app, exit_code,
      {"tune", "Find one regulariser per feature for softmax or ridge regression on your data",
       "Examples:\n"
       "  bilevel tune --train train.svm --test test.svm --features words.txt --out tuned\n"
       "  bilevel tune --train x.npy --train-labels y.npy --valid-part 0.3\n"
       "  bilevel tune --train houses.csv --label-column price --loss squared\n"
       "  bilevel tune --data newsgroups --data-dir 20news-bydate.tar.xz\n"
       "  bilevel tune --resume tuned"},
      [](const TuneJobOptions& options, RunContext& context) { return run_tune(options, context); },
      print_tune);
}

}  // namespace bilevel::cli
