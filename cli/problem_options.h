#pragma once
// The options of commands that work on a registered problem, and the defaults that an algorithm takes from
// it.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bilevel/nas/synthetic_supernet.h"
#include "bilevel/problems/cleaning_sets.h"
#include "bilevel/problems/registry.h"
#include "cli/algorithm_options.h"

namespace bilevel::cli {

struct ProblemFlags {
  std::string problem;
  ProblemOptions data;
  nas::SyntheticSupernet supernet;
  std::string named_data;      // of hyper-cleaning: an image set with noise drawn on its labels
  NamedCleaningOptions named;  // its options, as `bilevel clean` has them
};
// Of problems/ and, from nas/, the supernet.
std::vector<ProblemRow> all_problem_rows();
void add_problem_options(CLI::App& command, ProblemFlags& flags);
// Throws std::invalid_argument where only some of the files of a user's own data are given, and where an
// option belongs to another problem.
NamedProblem make_problem(const CLI::App& command, const ProblemFlags& flags);

// Steps and rates from the problem, unless they were given: T = 10 where w goes on where it was, the
// problem's own number, which solves it, where it begins anew. Then finish_algorithm_options.
void set_problem_defaults(const CLI::App& command, const NamedProblem& problem, AlgorithmFlags& flags);

}  // namespace bilevel::cli
