#pragma once
// How the linear solves of a run ended. Every job counts them and shows the counts; where most have failed,
// what moves x is not a hypergradient, and the run ends with the cause.

#include <cstdint>
#include <map>
#include <string>

#include "bilevel/core/linear_solve.h"

namespace bilevel {

// Whether an answer is of no use. A series that grows (`diverged`) has none. Negative curvature ends
// conjugate gradients and a fixed point before the solution (`needs_positive`); a short Neumann series or a
// factorisation gives what it is asked for there too. A breakdown is shown but no failure: of a positive
// matrix that is too badly conditioned for its precision, the best iterate so far is what there is.
bool solve_failed(Status status, bool needs_positive);

// The one that is further from a solution, of two solves behind one direction.
Status worse(Status a, Status b);

using StatusCounts = std::map<std::string, int64_t>;  // by name_of(Status)

int64_t times_of(Status status, const StatusCounts& statuses);

struct SolveTally {
  int64_t all = 0, failed = 0;
  void count(bool failure);
  bool most_failed() const { return 2 * failed > all; }
  bool ends_run() const;  // most of enough to judge by: before its end; at its end any number is
};
SolveTally tally_of(const StatusCounts& statuses, bool needs_positive);

std::string statuses_text(const StatusCounts& statuses);  // "180 ok, 20 diverged", the most frequent first

}  // namespace bilevel
