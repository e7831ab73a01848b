#pragma once
// A problem with its outer loss replaced by a linear one, <p, w> + <q, x>: the same inner problem asked for
// another hypergradient, q - C H^-1 p. An estimator that is right for one p may owe that to where this p
// lies; a second p shows it.

#include "bilevel/core/problem.h"

namespace bilevel {

class WithLinearOuter : public Problem {
 public:
  // `base` must outlive this object; p is of w's size, q of x's.
  WithLinearOuter(const Problem& base, Tensor p, Tensor q);

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override;
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor inner_start(const Tensor& x) const override;
  Tensor inner_rate(const Tensor& x) const override;
  const Layout* inner_layout() const override;
  bool inner_loss_uses_outer() const override;
  void project_outer_(Tensor& x) const override;

 private:
  const Problem& base_;
  Tensor p_, q_;
};

// df/dw of random direction and of the length that `outer` has (1 where that is 0), beside its own df/dx.
WithLinearOuter with_random_outer(const Problem& base, const OuterGradients& outer, uint64_t seed);

}  // namespace bilevel
