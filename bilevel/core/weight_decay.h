#pragma once
// Weight decay is part of g, not of the optimiser: g + decay/2 |w|^2. As a problem around a problem it
// reaches the gradient, the Hessian, the Gauss-Newton matrix and the unrolled steps alike, so no estimator
// can forget it.

#include <memory>
#include <optional>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"

namespace bilevel {

class WithWeightDecay : public Problem, public BoundedEvaluation {
 public:
  // `base` must outlive this object. Throws std::invalid_argument unless decay >= 0 and finite.
  WithWeightDecay(const Problem& base, double decay);
  WithWeightDecay(std::unique_ptr<const Problem> base, double decay);  // owns it

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override;
  int64_t outer_samples() const override;
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor inner_start(const Tensor& x) const override;
  Tensor inner_rate(const Tensor& x) const override;
  const Layout* inner_layout() const override;
  bool inner_loss_uses_outer() const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;
  void project_outer_(Tensor& x) const override;
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;

 private:
  std::unique_ptr<const Problem> owned_;
  const Problem& base_;
  double decay_;
};

}  // namespace bilevel
