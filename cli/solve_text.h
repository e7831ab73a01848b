#pragma once
// What the text of all jobs that run an algorithm has in common.

#include "bilevel/algorithms/solve.h"

namespace bilevel::cli {

// How its linear solves ended, in a line.
void print_linear_solves(const SolveSummary& summary);
// Every failure with its cause and its repair.
void print_failures(const SolveSummary& summary);

}  // namespace bilevel::cli
