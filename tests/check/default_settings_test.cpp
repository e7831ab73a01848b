// Every algorithm on every problem with the steps and rates that the program takes where a user gives none.
#include "bilevel/check/default_settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/algorithms/solve.h"
#include "bilevel/check/value_function.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

std::vector<std::string> problem_names() {
  std::vector<std::string> names;
  for (const ProblemRow& row : problem_rows()) names.push_back(row.name);
  return names;
}

// f(x, w*(x)) where that is known, else the algorithm's own.
double value_at(const NamedProblem& named, ValueFunction& value, const SolveRecord& record) {
  if (!named.convex) return record.outer_loss;
  const auto measured = value.value(record.x, record.w);
  EXPECT_TRUE(measured.has_value()) << value.why();
  return measured.value_or(std::nan(""));
}

class Defaults : public ::testing::TestWithParam<std::string> {};

TEST_P(Defaults, KeepEveryAlgorithmFiniteAndLowerTheLoss) {
  const NamedProblem named = make_problem(GetParam());
  const bool learned = named.problem->inner_rate(named.problem->initial_outer(0)).defined();
  ValueFunction value(*named.problem);
  for (const AlgorithmRow& row : algorithm_rows()) {
    AlgorithmSettings settings = default_settings(named, row);
    // A network's Hessian has negative eigenvalues, and a linear solve that meets them ends the run with this
    // way out.
    if (named.name == "mlp") settings.hypergradient.curvature = {.kind = "gauss-newton", .damping = 0.01};
    // As many iterations as `solve` takes, or as many as a few seconds for all allow.
    SolveOptions options{.iterations = 200, .oracle_calls = 6000, .records = 1, .keep_points = true};
    options.settings = settings;
    SolveSummary summary;
    try {
      summary = solve(*named.problem, *row.make(settings), options);
    } catch (const std::invalid_argument&) {
      EXPECT_TRUE(learned) << row.name;  // a learned rate needs an algorithm that unrolls
      continue;
    }
    const auto begin = value_at(named, value, summary.records.front());
    const auto end = value_at(named, value, summary.records.back());
    EXPECT_FALSE(ended_badly(summary.reason)) << row.name << ": " << summary.message;
    EXPECT_TRUE(summary.failures.empty()) << row.name << ": " << summary.failures.front().what;
    // Without the implicit term x follows df/dx alone, which leads uphill there; and on a network BOME's
    // inner problem, solved afresh at another x, ends in another valley.
    if (row.name == "darts-first-order" && named.name == "counterexample") continue;
    if (row.name == "bome" && named.name == "mlp") continue;
    EXPECT_LE(end, begin + 1e-6 * std::abs(begin)) << row.name;  // both are known to about 1e-8
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, Defaults, ::testing::ValuesIn(problem_names()),
                         [](const auto& row) { return test_name(row.param); });

}  // namespace
}  // namespace bilevel::test
