#pragma once
// The point of the smallest validation loss along a run: what a job returns, since the last point of a
// diverging or overfitting run is not what anybody wants.

#include <cstdint>
#include <functional>

#include "bilevel/algorithms/solve.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

// The inner solution of the smallest outer loss, and the x that it belongs to: most algorithms' w was made at
// the x before their last step, and others say where (InnerSolution::x). The loss is the record's, with the
// state's x: it is that of x and w where f does not contain x, as in the jobs that select by it. Give it
// every record, step and repair in turn (follow() below does).
class BestPoint {
 public:
  // False where `patience` iterations have passed since the best one; 0 = never.
  bool take(const SolveRecord& record, const AlgorithmState& state, int64_t patience = 0);
  void moved(const AlgorithmState& state);      // after a step
  void went_back(const AlgorithmState& state);  // after a repair

  Tensor x, w;
  double loss = 0;
  int64_t iteration = 0;  // whose inner steps gave w
  Tensor before, now;     // x before the last step and after it
};

// The hooks with the point's own added; `hooks` goes first.
SolveHooks follow(BestPoint& best, SolveHooks hooks, int64_t patience = 0);

// What runs a search: solve(), or a command's way around it with a folder and an end by a signal. The best
// point so far belongs to the search's state: a resumed one sets it from the checkpoint.
using Solver =
    std::function<SolveSummary(const Problem& problem, const Algorithm& algorithm,
                               const SolveOptions& options, const SolveHooks& hooks, BestPoint& best)>;

}  // namespace bilevel
