// `bilevel compare`: several algorithms on one problem with the same budget, by oracle calls and by seconds.

#include "bilevel/jobs/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

std::string spread_text(const MeanAndSpread& m) { return fmt::format("{:.5g} +- {:.1g}", m.mean, m.spread); }

void print_comparison(const CompareJobResult& result) {
  const CompareOptions& c = result.options;
  const Comparison& comparison = result.comparison;
  const bool by_value = comparison.yardstick == Yardstick::value_function;
  std::vector<std::string> budget;
  if (c.solve.seconds > 0) budget.push_back(fmt::format("{} s", c.solve.seconds));
  if (c.solve.oracle_calls > 0) budget.push_back(fmt::format("{} oracle calls", c.solve.oracle_calls));
  if (budget.empty()) budget.push_back(fmt::format("{} iterations", c.solve.iterations));
  fmt::print("{}, seeds {}, {} a run{}\n", result.problem, fmt::join(c.seeds, ", "),
             fmt::join(budget, " or "), c.search.on ? ", as much again for the search for its rates" : "");
  fmt::print("every row is measured by {}\n", yardstick_text(c, comparison.yardstick));
  if (!comparison.why.empty()) {
    fmt::print("not {}: {}\n", name_of(Yardstick::value_function), comparison.why);
  }
  fmt::print("\n{:<22}{:>5}{:>11}{:>11}{:>12}{:>12}{:>22}{:>22}\n", "algorithm", "T", "inner rate",
             "outer rate", "iterations", "calls", name_of(comparison.yardstick),
             by_value ? "|its gradient|" : "");
  for (const ComparedAlgorithm& a : comparison.algorithms) {
    const ComparedOverSeeds all = over_seeds(a, c.settings);
    fmt::print("{:<22}{:>5}{:>11.3g}{:>11.3g}{:>12.0f}{:>12.0f}{:>22}{:>22}{}\n", a.name,
               all.inner_steps ? fmt::to_string(*all.inner_steps) : "-", a.inner_rate, a.outer_rate,
               all.iterations, all.oracle_calls, spread_text(all.value),
               all.gradient_norm ? spread_text(*all.gradient_norm) : "",
               all.diverged ? "  diverged: shown where it was last finite" : "");
  }
}

}  // namespace

void add_compare_command(CLI::App& app, int& exit_code) {
  add_kept_question<CompareJobOptions>(
      app, exit_code,
      {"compare", "Compare algorithms on one problem, by oracle calls and by seconds",
       "Examples:\n"
       "  bilevel compare --problem hyper-cleaning --algorithms aid-cg,itd,soba --budget-seconds 5\n"
       "  bilevel compare --problem ridge --algorithms aid-cg,idarts --outer-rate 1 --budget-calls 2000 "
       "--out cmp"},
      "runs.csv, by_seconds.csv, by_oracle_calls.csv and summary.json", run_compare, print_comparison);
}

}  // namespace bilevel::cli
