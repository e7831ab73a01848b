#pragma once
// A whole-step rule of bilevel optimisation: from a state and the batches it draws to the next state. Double
// loops with any estimator are one of them (double_loop.h); single-loop algorithms are the others. One loop
// runs them all (solve.h). Adding one is a file in this folder and a row in registry.cpp.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "bilevel/algorithms/streams.h"
#include "bilevel/core/error_bound.h"
#include "bilevel/core/inner.h"
#include "bilevel/core/linear_solve.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/outer.h"
#include "bilevel/core/tensor.h"
#include "bilevel/core/trajectory.h"

namespace bilevel {

template <typename Options>
class Fields;  // fields/fields.h

// Everything that a run carries from one iteration to the next, as plain data: a checkpoint is this and the
// streams' positions. Tensors are replaced, never written to, so that a copy of a state stays what it was.
struct AlgorithmState {
  int64_t iteration = 0;
  Tensor x;
  InnerState inner;                      // w with the inner optimiser's momenta
  Tensor v;                              // of the linear system H v = df/dw; undefined until it is first used
  OuterState outer;                      // of the outer optimiser
  std::map<std::string, Tensor> memory;  // what else an algorithm remembers, by name
  std::map<std::string, double> numbers;  // and as numbers: a tolerance, an outer rate, ...
};

struct IterationSummary {
  Tensor direction;   // the estimate of the hypergradient that moved x
  Tensor outer_loss;  // f on the batch where the algorithm met it anyway; undefined = it did not
  Status status = Status::not_run;  // of the linear solve, where there is one; else ok
  // The solve has no answer without positive curvature: conjugate gradients, a fixed point (linear_solves.h).
  bool needs_positive = false;
  // df/dx alone, where the algorithm's direction is an estimator's or has it apart: |direction - direct| /
  // |direct| is how much comes through w. Undefined = not known.
  Tensor direct = {};
  ErrorBound bound = {};  // on the direction's distance from the exact hypergradient, where it was asked for
};

// What a result gives as the solution of the inner problem.
struct InnerSolution {
  Tensor w;
  Tensor x = {};  // where w was made; undefined: at the x before the last step
};

class Algorithm {
 public:
  explicit Algorithm(const OuterOptions& outer);
  virtual ~Algorithm() = default;
  virtual std::string_view name() const = 0;

  // The state before the first iteration. Throws std::invalid_argument where the problem learns its start or
  // rate and the algorithm never unrolls the steps that these belong to.
  AlgorithmState init(const Oracle& oracle, const Tensor& x, const Tensor& w) const;
  // One outer iteration. Throws NotFiniteError, and then leaves the state as it was, where x, w or v leaves
  // the finite numbers.
  IterationSummary step(Oracle& oracle, AlgorithmState& state, Streams& streams) const;
  // The state's w, unless the algorithm trains that on f too: what is reported, saved and selected by is
  // trained on g alone. What it takes is counted by the oracle that is given.
  virtual InnerSolution inner_solution(Oracle& oracle, const AlgorithmState& state) const;

 protected:
  const OuterOptimizer& outer() const { return outer_; }
  // The next x, by checks that the oracle may put off.
  Tensor outer_step(Oracle& oracle, const Tensor& x, const Tensor& direction, OuterState& state) const;

 private:
  virtual bool unrolls() const { return false; }    // derivatives flow into a learned start or rate
  virtual void begin(AlgorithmState& state) const;  // momenta and the like; the default has none
  // Moves x, inner, v and memory. The projection onto the problem's set and the count of iterations follow in
  // step().
  virtual IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const = 0;

  OuterOptimizer outer_;
};

// w - rate * gradient, of the algorithms that take plain gradient steps inside.
Tensor descend(const Tensor& from, const Tensor& direction, double rate);

// x brought back to the problem's set, for algorithms that take derivatives at the next x within a step.
Tensor projected(const Problem& problem, const Tensor& x);

// T inner steps from where the last ones ended, each on its own batch of the stream "steps": `size` examples,
// 0 = the run's batch size.
Trajectory warm_inner_steps(Oracle& oracle, const AlgorithmState& state, Streams& streams,
                            const InnerOptions& options, int64_t size = 0);

}  // namespace bilevel
