#include "bilevel/algorithms/best_point.h"

namespace bilevel {

bool BestPoint::take(const SolveRecord& record, const AlgorithmState& state, int64_t patience) {
  if (!now.defined()) now = state.x;
  // The first record is the start, whose w no x has been used for.
  if (!w.defined() || record.outer_loss < loss) {
    x = record.x_of_w.defined() ? record.x_of_w : before.defined() ? before : state.x;
    w = record.w;
    loss = record.outer_loss;
    iteration = record.iteration;
  }
  return patience == 0 || record.iteration - iteration < patience;
}

void BestPoint::moved(const AlgorithmState& state) {
  before = now;
  now = state.x;
}

void BestPoint::went_back(const AlgorithmState& state) { before = now = state.x; }

SolveHooks follow(BestPoint& best, SolveHooks hooks, int64_t patience) {
  SolveHooks result = hooks;
  result.record = [&best, patience, own = hooks.record](const SolveRecord& record,
                                                        const AlgorithmState& state) {
    const bool go_on = !own || own(record, state);
    return best.take(record, state, patience) && go_on;
  };
  result.step = [&best, own = hooks.step](const AlgorithmState& state, double direction_norm,
                                          double seconds) {
    best.moved(state);
    if (own) own(state, direction_norm, seconds);
  };
  result.went_back = [&best, own = hooks.went_back](const AlgorithmState& state) {
    best.went_back(state);
    if (own) own(state);
  };
  return result;
}

}  // namespace bilevel
