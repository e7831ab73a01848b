#pragma once
// When a run goes wrong: what happened, why, and what to change. Nothing here costs anything while all goes
// well but a look at |w|; the spectrum that names the cause is measured once something has happened, by an
// oracle of its own, so its products are not counted.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/linear_solves.h"
#include "bilevel/algorithms/registry.h"
#include "bilevel/core/problem.h"

namespace bilevel {

enum class OnFailure {
  stop,       // at the last good state, with the cause
  backtrack,  // go back to it and lower the rate that is to blame
  damp,       // go back to it and raise the damping of implicit hypergradients
};
OnFailure parse_on_failure(const std::string& name);  // throws std::invalid_argument, with all names
std::string_view name_of(OnFailure choice);

// What repairs have made of the settings that a run began with.
struct Adjustment {
  double inner_rate = 1, linear_rate = 1, outer_rate = 1;  // factors
  double damping = 0;                                      // added
  bool is_none() const { return inner_rate == 1 && linear_rate == 1 && outer_rate == 1 && damping == 0; }
};
AlgorithmSettings adjusted(AlgorithmSettings settings, const Adjustment& adjustment);

// What a run did about a failure.
enum class FailureAnswer { ended, repaired, went_on };

// One failure, as a summary tells it.
struct SolveFailure {
  int64_t iteration = 0;  // in which it happened, from 1
  std::string what;
  std::string cause;   // with the option to change
  std::string repair;  // what was done, in words
  FailureAnswer answer = FailureAnswer::ended;
};

// Limits beyond which a finite run is looked at: |w| and the direction a thousand times the first ones. An
// alarm that turns out to be none is not given again until there is ten times as much, so that it is not
// looked into at every step; what counts as healthy stays what it was.
struct FailureWatch {
  double largest_w = 0, largest_direction = 0;          // 0 = not set yet
  double looked_into_w = 0, looked_into_direction = 0;  // the largest that false alarms have had
  SolveTally solves = {};                               // since the last repair
  bool begun() const { return largest_w > 0 && largest_direction > 0; }
  void begin(double w, double direction);          // sets what is not set
  bool healthy(double w, double direction) const;  // far from either limit: a state to go back to
  bool alarmed(double w, double direction) const;
  void false_alarm(double w, double direction);
};

enum class Blame { nothing, inner_rate, linear_rate, curvature, outer_rate, data };

struct FailureCause {
  Blame blame = Blame::nothing;
  std::string cause = {};
  bool confirmed = false;  // by the spectrum; else it is what is left when nothing else can be
  double safe_rate = std::numeric_limits<double>::infinity();  // of the rate that is to blame
  double smallest = 0, largest = 0;  // eigenvalues of the inner Hessian at the point looked at
};

// At `state`, before the iteration that failed; `good` is the last state from which an iteration went well.
// `settings` as they were in use; null = not known, and only the largest safe rate can be named.
FailureCause find_cause(const Problem& problem, const AlgorithmSettings* settings,
                        const AlgorithmState& state, const AlgorithmState& good);
// The inner Hessian is not positive: which damping would make it so.
FailureCause find_curvature_cause(const Problem& problem, const AlgorithmSettings* settings,
                                  const AlgorithmState& state);

// Most linear solves diverged: the rate that they take against the spectrum.
FailureCause find_linear_cause(const Problem& problem, const AlgorithmSettings* settings,
                               const AlgorithmState& state);

// For runs on networks, whose full set is too much for a message: the largest curvature on one batch, by
// twenty products, and the rate that it allows.
std::string curvature_on_batch(const Problem& problem, const AlgorithmState& state, const Batch& batch);

// Changes the adjustment and says how, or returns nullopt where this choice has no remedy.
std::optional<std::string> repair(OnFailure choice, const FailureCause& diagnosis,
                                  const AlgorithmSettings& settings, Adjustment& adjustment);

}  // namespace bilevel
