#include "cli/solve_text.h"

#include <fmt/format.h>

#include "bilevel/algorithms/linear_solves.h"

namespace bilevel::cli {

void print_linear_solves(const SolveSummary& summary) {
  fmt::print("linear solves: {}\n", statuses_text(summary.statuses));
}

void print_failures(const SolveSummary& summary) {
  for (const SolveFailure& f : summary.failures) {
    fmt::print("\nfailure in iteration {}: {}\n  cause: {}\n  repair: {}\n", f.iteration, f.what, f.cause,
               f.repair);
  }
}

}  // namespace bilevel::cli
