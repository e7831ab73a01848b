#pragma once
// The job `compare`: several algorithms on one problem known by name, with the same budget. On a problem or
// with your own algorithms, call compare_algorithms() of bilevel/check/compare.h.

#include <cstdint>
#include <optional>
#include <string>

#include "bilevel/check/compare.h"
#include "bilevel/fields/fields.h"
#include "bilevel/jobs/algorithm_choice.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/jobs/problem_choice.h"
#include "bilevel/jobs/seed_list.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

struct CompareJobOptions {
  CompareJobOptions();
  ProblemChoice problem = {};
  SeedList seeds = {{0, 1, 2}};
  AlgorithmChoice algorithm =
      {};                       // the settings and the budget of all of them; its choice of one is not read
  CompareOptions compare = {};  // its algorithms and its search; the rest is filled in
  bool own_loss = false;        // f(x, w) at the algorithm's own w is compared, not at the solved one
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<CompareJobOptions>& fields();
};

struct CompareJobResult {
  std::string problem = {};     // its name
  CompareOptions options = {};  // that were used
  Comparison comparison = {};
  std::string folder = {};  // empty: nothing is kept
  Json json = {};           // all of it, as summary.json has it
  JobEnd end = {};          // interrupted between two runs: nothing is compared then
};
CompareJobResult run_compare(CompareJobOptions options, RunContext& context);

// One algorithm's numbers over its seeds.
struct ComparedOverSeeds {
  std::optional<int64_t> inner_steps = {};  // algorithms that take one step of w an iteration have no T
  double iterations = 0, oracle_calls = 0;  // means
  MeanAndSpread value = {};                 // at the end
  std::optional<MeanAndSpread> gradient_norm = {};  // where the yardstick has one
  bool diverged = false;                            // some seed
};
ComparedOverSeeds over_seeds(const ComparedAlgorithm& algorithm, const AlgorithmSettings& settings);

// What the numbers of every row are, in words.
std::string yardstick_text(const CompareOptions& options, Yardstick yardstick);

}  // namespace bilevel
