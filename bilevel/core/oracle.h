#pragma once
// A problem, and what it has cost so far. Every derivative that an estimator or an algorithm uses goes
// through here and is counted once; there is no other way to a derivative. A graph that hangs on the caller's
// w or x ends here: a closed form would otherwise carry it along all the steps.

#include <cstdint>
#include <memory>

#include "bilevel/core/finite.h"
#include "bilevel/core/linearization.h"
#include "bilevel/core/problem.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

struct OracleCounts {
  int64_t inner_gradient = 0;  // first derivatives of g: grad_w g, or grad_x g
  int64_t outer_gradient = 0;  // grad_w f and grad_x f, which come from one pass, or grad_x f alone
  int64_t hessian = 0;         // products with d2g/dw dw, or with the Gauss-Newton matrix in its place
  int64_t cross = 0;           // products with d2g/dx dw or with its transpose
  int64_t samples = 0;         // examples read by all of the above
  double seconds = 0;          // time inside the problem; on a GPU the time to queue the work

  OracleCounts& operator+=(const OracleCounts& other);
  friend OracleCounts operator-(OracleCounts a, const OracleCounts& b);
};
// Gradients and products together: the usual yardstick.
inline int64_t oracle_calls(const OracleCounts& c) {
  return c.inner_gradient + c.outer_gradient + c.hessian + c.cross;
}

class Oracle {
 public:
  explicit Oracle(const Problem& problem) : problem_(problem) {}  // the problem must outlive the oracle
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;

  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch);           // grad_w g
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch);  // grad_x g
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch);
  OuterGradients outer_gradient_in_outer(const Tensor& w, const Tensor& x,
                                         const Batch& batch);  // f, grad_x f
  // Products at one point; each is counted when it is asked for. It must not outlive the oracle.
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x, const Batch& batch);

  // Values alone, not counted: for reports, not for algorithms.
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch = {}) const;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch = {}) const;

  // The learned start and rate (Problem::inner_start, inner_rate). They touch no data and are not counted.
  // One element or one per inner variable, differentiable in x; undefined = not learned.
  Tensor inner_rate(const Tensor& x) const;
  Tensor start_pullback(const Tensor& x, const Tensor& adjoint) const;  // (dw_0/dx)' a
  Tensor start_tangent(const Tensor& x, const Tensor& u) const;         // (dw_0/dx) u
  Tensor rate_pullback(const Tensor& x, const Tensor& adjoint) const;   // the same of inner_rate()
  Tensor rate_tangent(const Tensor& x, const Tensor& u) const;

  const Problem& problem() const { return problem_; }
  const OracleCounts& counts() const { return counts_; }
  // Whether numbers are finite is asked here by whoever has an oracle: a search on a GPU puts the looks off.
  FiniteChecks& finite() { return finite_; }

 private:
  const Problem& problem_;
  OracleCounts counts_;
  FiniteChecks finite_;
};

}  // namespace bilevel
