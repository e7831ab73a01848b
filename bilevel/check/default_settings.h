#pragma once
// Steps and rates of an algorithm on a named problem, where a user gives none.

#include "bilevel/algorithms/registry.h"
#include "bilevel/problems/registry.h"

namespace bilevel {

// The problem's inner rate; T = 10 where w continues from where it was, the problem's own number, which
// solves it, where it starts afresh; Adam at the problem's outer rate, or a tenth of it where w takes one
// step an iteration instead of ten and must still follow x; for bome's joint step a tenth of the inner rate,
// because g counts several times in it.
AlgorithmSettings default_settings(const NamedProblem& problem, const AlgorithmRow& row);

}  // namespace bilevel
