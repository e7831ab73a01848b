// `bilevel tune`: one regulariser per feature for (sparse) softmax regression, found on validation examples.

#include "bilevel/jobs/tune.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "cli/job_command.h"
#include "cli/solve_text.h"

namespace bilevel::cli {
namespace {

void print_features(const TuneJobResult& result) {
  const size_t count = std::min(static_cast<size_t>(result.top), result.order.size());
  const auto print = [&](const char* title, const auto& position) {
    if (count == 0) return;
    fmt::print("\n{}\n", title);
    for (size_t i = 0; i < count; ++i) {
      const int64_t j = result.order[position(i)];
      const auto x = result.x[j].item<double>();
      fmt::print("  {:<32} x = {:>8.3f}   exp(x) = {:.4g}\n", result.feature_names[static_cast<size_t>(j)], x,
                 std::exp(x));
    }
  };
  print("most regularised", [](size_t i) { return i; });
  print("least regularised", [&](size_t i) { return result.order.size() - 1 - i; });
}

void print_scores(const TuneJobResult& result, const char* baseline, const char* returned,
                  const char* held_out) {
  fmt::print("{:<12}{:>24}{:>24}\n{:<12}{:>12}{:>12}{:>12}{:>12}\n", "", baseline, returned, "", "loss",
             "accuracy", "loss", "accuracy");
  for (const auto& [set, title] :
       {std::pair{"train", "train"}, std::pair{"valid", held_out}, std::pair{"test", "test"}}) {
    const std::string loss = fmt::format("{}_loss", set), accuracy = fmt::format("{}_accuracy", set);
    if (!result.scores.contains(loss)) continue;
    fmt::print("{:<12}{:>12.4f}{:>12.2f}{:>12.4f}{:>12.2f}\n", title, result.baseline.at(loss),
               result.baseline.at(accuracy), result.scores.at(loss), result.scores.at(accuracy));
  }
}

// Whether one regulariser per feature is worth it, in a sentence.
std::string verdict(const TuneJobResult& result) {
  if (result.feature_names.size() < 2) return "There is one feature, and so one regulariser.";
  const TuneTableResult& r = *result.table;
  // Of a single row there is no error.
  const std::string measured = fmt::format(
      "{:+.4f} +- {}", r.gain, std::isfinite(r.gain_error) ? fmt::format("{:.4f}", r.gain_error) : "?");
  const std::string on = r.nested ? "rows that were not searched on" : "the rows that were searched on";
  if (!r.kept_single) {
    return fmt::format("One regulariser per feature is returned: it gains {} in the loss of {}.", measured,
                       on);
  }
  return fmt::format(
      "One regulariser for all features is returned: one per feature gains {} in the loss of {}, which is "
      "less than its standard error.",
      measured, on);
}

void print_held_out(const TuneJobResult& result) {
  const TuneTableResult& r = *result.table;
  fmt::print("{} training, {} and {} test examples; {} features, {} classes\n", result.train_examples,
             result.valid_examples > 0 ? fmt::format("{} validation", result.valid_examples)
                                       : fmt::format("held out in {} folds,", result.folds),
             result.test_examples, result.feature_names.size(), result.class_names.size());
  fmt::print("{} fits with {} gradients and {} Hessian products in {:.1f} s\n\n", r.counts.fits,
             r.counts.gradients, r.counts.hessian_products, result.seconds);
  print_scores(result, "one regulariser", "returned", "held out");
  fmt::print("\n{}\n", verdict(result));
  if (!r.kept_single) print_features(result);
  fmt::print("\n");
}

void print_search(const TuneJobResult& result) {
  const TuneSearch& search = *result.search;
  const OracleCounts& counts = search.summary.counts;
  fmt::print(
      "{} training, {} validation and {} test examples; {} features, {} classes, {} training non-zeros\n",
      result.train_examples, result.valid_examples, result.test_examples, result.feature_names.size(),
      result.class_names.size(), result.nonzeros);
  fmt::print(
      "{}: {} iterations in {:.1f} s ({} inner and {} outer gradients, {} Hessian and {} cross "
      "products); inner rate {:.4g}, outer rate {:.4g} of {}\n\n",
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
    if (has_answer) print_search(result);
    print_linear_solves(result.search->summary);
    print_failures(result.search->summary);
    if (has_answer) fmt::print("\n");
  }
}

}  // namespace

void add_tune_command(CLI::App& app, int& exit_code) {
  add_job<TuneJobOptions>(
      app, exit_code,
      {"tune", "Find one regulariser per feature for softmax regression on your data",
       "Examples:\n"
       "  bilevel tune --train train.svm --test test.svm --features words.txt --out tuned\n"
       "  bilevel tune --train x.npy --train-labels y.npy --valid-part 0.3\n"
       "  bilevel tune --data newsgroups --data-dir 20news-bydate.tar.xz\n"
       "  bilevel tune --resume tuned"},
      [](const TuneJobOptions& options, RunContext& context) { return run_tune(options, context); },
      print_tune);
}

}  // namespace bilevel::cli
