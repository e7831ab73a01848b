#pragma once
// The state of solve() in a checkpoint and out of it again, bit for bit. Needs nlohmann-json where it is
// included.

#include "bilevel/algorithms/solve.h"
#include "bilevel/run/checkpoint.h"

namespace bilevel {

void put_solve(Checkpoint& checkpoint, const SolveState& state);
// Tensors go to `device`. Throws std::runtime_error naming what is missing or of the wrong kind.
SolveState take_solve(const Checkpoint& checkpoint, c10::Device device = c10::kCPU);

}  // namespace bilevel
