#pragma once
// The two levels with their roles exchanged: x is what the inner loss is minimised over, f is that loss, and
// w is held. So products with d2f/dx dx at fixed w come from the same oracle, solvers and spectra as those
// with the inner Hessian:
//
//     const RoleSwap swapped(problem);
//     Oracle oracle(swapped);
//     oracle.linearize(x, w, batch)->hessian(v);   // (d2f/dx dx) v on a batch of f
//
// The largest eigenvalue of that matrix is the usual warning of a collapsing architecture search (Zela et al.
// 2020). A loss f without x in it has no such products: asking for one throws std::invalid_argument.

#include "bilevel/core/problem.h"

namespace bilevel {

class RoleSwap : public Problem {
 public:
  explicit RoleSwap(const Problem& base) : base_(base) {}  // `base` must outlive this object

  // In all of these the first vector is the base's x and the second its w.
  Tensor inner_loss(const Tensor& x, const Tensor& w, const Batch& batch) const override;  // f
  Tensor outer_loss(const Tensor& x, const Tensor& w, const Batch& batch) const override;  // g
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override;
  int64_t outer_samples() const override;
  Tensor inner_gradient(const Tensor& x, const Tensor& w, const Batch& batch) const override;  // df/dx
  Tensor inner_gradient_in_outer(const Tensor& x, const Tensor& w, const Batch& batch) const override;

 private:
  const Problem& base_;
};

}  // namespace bilevel
