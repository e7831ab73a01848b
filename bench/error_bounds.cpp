// Do rigorous error bounds hold? As many random problems as one likes, of every kind that states its
// constants, in single and double precision, solved and not (tests/hypergradients/bound_trials.h). Prints one
// line per kind and precision, and every seed that broke a bound; exit code 1 where one did.
//
//     build/release/bench/bench_error_bounds --first 1 --count 100000

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench/support.h"
#include "tests/hypergradients/bound_trials.h"

namespace {

using bilevel::BoundKind;
using bilevel::test::Trial;

struct Row {
  int64_t problems = 0, solved = 0, rigorous = 0, violations = 0;
  double least = INFINITY;     // of bound / error
  std::vector<double> ratios;  // where the error is not zero
};

double quantile(std::vector<double>& values, double part) {
  if (values.empty()) return NAN;
  const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

void print(const std::string& name, Row& row) {
  fmt::print("{:<20}{:<8}{:>9}{:>9}{:>10}{:>12}{:>12.6g}{:>10.3g}{:>10.3g}\n", name.substr(0, name.find('/')),
             name.substr(name.find('/') + 1), row.problems, row.solved, row.rigorous, row.violations,
             row.least, quantile(row.ratios, 0.5), quantile(row.ratios, 0.95));
}

int run(int argc, char** argv) {
  bench::Options options(argc, argv);
  const int64_t first = options.integer("first", 1), count = options.integer("count", 1000);
  options.finish();
  const auto& kinds = bilevel::test::trial_kinds();
  std::vector<Row> rows(2 * kinds.size());
  Row all;
  for (int64_t seed = first; seed < first + count; ++seed) {
    const Trial trial = bilevel::test::run_trial(static_cast<uint64_t>(seed));
    for (Row* row : {&rows[2 * trial.kind + (trial.single ? 0 : 1)], &all}) {
      ++row->problems;
      row->solved += trial.solved ? 1 : 0;
      if (trial.bound.kind != BoundKind::rigorous) continue;
      ++row->rigorous;
      if (!(trial.error <= trial.bound.value)) ++row->violations;
      if (trial.error > 0) {
        row->least = std::min(row->least, trial.bound.value / trial.error);
        row->ratios.push_back(trial.bound.value / trial.error);
      }
    }
    if (trial.bound.kind == BoundKind::rigorous && !(trial.error <= trial.bound.value)) {
      fmt::print("VIOLATED by seed {}: {}, {}, {}: error {:.17g}, bound {:.17g}\n", seed, kinds[trial.kind],
                 trial.single ? "float" : "double", trial.method, trial.error, trial.bound.value);
    }
  }
  fmt::print("{:<20}{:<8}{:>9}{:>9}{:>10}{:>12}{:>12}{:>10}{:>10}\n", "problem", "type", "problems", "solved",
             "rigorous", "violations", "least", "median", "95 %");
  for (size_t k = 0; k < kinds.size(); ++k) {
    print(kinds[k] + "/float", rows[2 * k]);
    print(kinds[k] + "/double", rows[2 * k + 1]);
  }
  print("all/", all);
  return all.violations > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_error_bounds: {}\n", error.what());
    return 2;
  }
}
