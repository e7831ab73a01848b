#pragma once
// The job `solve`: one algorithm on one problem known by name, with its history. On your own problem or
// algorithm, call solve() of bilevel/algorithms/solve.h.

#include <string>

#include "bilevel/algorithms/solve.h"
#include "bilevel/fields/fields.h"
#include "bilevel/jobs/algorithm_choice.h"
#include "bilevel/jobs/automatic.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/problem_choice.h"
#include "bilevel/jobs/solve_run.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

struct SolveJobOptions {
  SolveJobOptions();
  ProblemChoice problem = {};
  AlgorithmChoice algorithm = {};
  AutomaticOptions automatic = {};
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<SolveJobOptions>& fields();
};

struct SolveJobResult {
  std::string problem = {};         // its name
  AlgorithmSettings settings = {};  // that were used
  SolveSummary summary = {};
  std::string folder = {};  // empty: nothing is kept
  Json json = {};           // all of it, as summary.json has it
  JobEnd end = {};
};
// Throws OptionError for options that cannot be, RunError for a run that cannot be resumed.
SolveJobResult run_solve(SolveJobOptions options, RunContext& context);
// The same with an algorithm that the registry does not know, made by the caller from options that are
// complete: the run, its files and its result are those of any other. `reads_inner_rate`: the result names
// the rate.
SolveJobResult run_solve_with(const Algorithm& algorithm, bool reads_inner_rate, const NamedProblem& problem,
                              SolveJobOptions options, RunContext& context);

}  // namespace bilevel
