#pragma once
// The options of every command that runs an algorithm: which one, its rates and lengths, its batches and its
// budget.

#include <CLI/CLI.hpp>
#include <string>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"

namespace bilevel::cli {

struct AlgorithmFlags {
  std::string algorithm = "aid-cg";
  std::string inner_schedule = "constant", outer_schedule = "constant";
  std::string curvature = "hessian";
  std::string on_failure = "stop";
  AlgorithmSettings settings;
  SolveOptions solve;
};
// `with_choice` = with --algorithm; compare takes several and has its own option.
void add_algorithm_options(CLI::App& command, AlgorithmFlags& flags, bool with_choice = true);
// Turns names into values, once the command line is parsed and the defaults that depend on the problem are
// set.
void finish_algorithm_options(AlgorithmFlags& flags);

}  // namespace bilevel::cli
