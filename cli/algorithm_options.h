#pragma once
// The options of every command that runs an algorithm: which one, its rates and lengths, its batches and its
// budget.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/core/problem.h"

namespace bilevel::cli {

struct AlgorithmFlags {
  std::string algorithm = "aid-cg";
  std::string inner_schedule = "constant", outer_schedule = "constant", linear_schedule = "constant";
  std::string curvature = "hessian";
  std::string on_failure = "stop";
  AlgorithmSettings settings;
  SolveOptions solve;
};
// `with_choice` = with --algorithm; compare takes several and has its own option.
void add_algorithm_options(CLI::App& command, AlgorithmFlags& flags, bool with_choice = true);
// Turns names into values, once the command line is parsed and the defaults that depend on the problem are
// set. Throws std::invalid_argument for an option that the algorithm does not read. A default of the
// command's that it does not read becomes the library's, so that no text tells of what is not used.
void finish_algorithm_options(const CLI::App& command, AlgorithmFlags& flags);
// Plain steps for x where the algorithm's rates fall in fixed ratios and the command line does not ask for
// another optimiser. `longest` is how far the first of them moves an entry of x, which is Adam's rate by
// default; a rate that is given stays. Call it before finish_algorithm_options.
void set_fixed_ratio_defaults(const CLI::App& command, const Problem& problem, double longest,
                              AlgorithmFlags& flags);
// An option that would be ignored is an error: none of these algorithms reads it.
void refuse_ignored_options(const CLI::App& command, const AlgorithmFlags& flags,
                            const std::vector<std::string>& algorithms);

}  // namespace bilevel::cli
