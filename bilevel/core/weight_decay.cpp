#include "bilevel/core/weight_decay.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "bilevel/core/require.h"

namespace bilevel {
namespace {

class DecayedLinearization : public Linearization {
 public:
  DecayedLinearization(std::unique_ptr<Linearization> base, Tensor w, double decay)
      : base_(std::move(base)), w_(std::move(w)), decay_(decay) {}

  Tensor gradient() override { return at::add(base_->gradient(), w_, decay_); }
  Tensor hessian(const Tensor& v) override { return at::add(base_->hessian(v), v, decay_); }
  Tensor cross(const Tensor& v) override { return base_->cross(v); }
  Tensor cross_transposed(const Tensor& u) override { return base_->cross_transposed(u); }
  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) override {
    auto both = base_->hessian_and_cross(v);
    return {at::add(both.first, v, decay_), both.second};
  }
  Tensor gauss_newton(const Tensor& v) override { return at::add(base_->gauss_newton(v), v, decay_); }

 private:
  std::unique_ptr<Linearization> base_;
  Tensor w_;
  double decay_;
};

double checked(double decay) {
  require_nonnegative("weight_decay", decay);
  return decay;
}

}  // namespace

WithWeightDecay::WithWeightDecay(const Problem& base, double decay) : base_(base), decay_(checked(decay)) {}
WithWeightDecay::WithWeightDecay(std::unique_ptr<const Problem> base, double decay)
    : owned_(std::move(base)), base_(*owned_), decay_(checked(decay)) {}

Tensor WithWeightDecay::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.inner_loss(w, x, batch) + 0.5 * decay_ * w.dot(w);
}
Tensor WithWeightDecay::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.outer_loss(w, x, batch);
}
Tensor WithWeightDecay::initial_inner(uint64_t seed) const { return base_.initial_inner(seed); }
Tensor WithWeightDecay::initial_outer(uint64_t seed) const { return base_.initial_outer(seed); }
int64_t WithWeightDecay::inner_samples() const { return base_.inner_samples(); }
int64_t WithWeightDecay::outer_samples() const { return base_.outer_samples(); }

std::unique_ptr<Linearization> WithWeightDecay::linearize(const Tensor& w, const Tensor& x,
                                                          const Batch& batch) const {
  return std::make_unique<DecayedLinearization>(base_.linearize(w, x, batch), w, decay_);
}

Tensor WithWeightDecay::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return at::add(base_.inner_gradient(w, x, batch), w, decay_);
}

Tensor WithWeightDecay::inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.inner_gradient_in_outer(w, x, batch);
}

OuterGradients WithWeightDecay::outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.outer_gradients(w, x, batch);
}

OuterGradients WithWeightDecay::outer_gradient_in_outer(const Tensor& w, const Tensor& x,
                                                        const Batch& batch) const {
  return base_.outer_gradient_in_outer(w, x, batch);
}

std::optional<InnerParts> WithWeightDecay::inner_parts(const Tensor& w, const Tensor& x,
                                                       const Batch& batch) const {
  std::optional<InnerParts> parts = base_.inner_parts(w, x, batch);
  if (parts) {
    const Tensor decay = 0.5 * decay_ * w.dot(w);
    parts->regularizer = parts->regularizer.defined() ? parts->regularizer + decay : decay;
  }
  return parts;
}

Tensor WithWeightDecay::inner_start(const Tensor& x) const { return base_.inner_start(x); }
Tensor WithWeightDecay::inner_rate(const Tensor& x) const { return base_.inner_rate(x); }
const Layout* WithWeightDecay::inner_layout() const { return base_.inner_layout(); }
bool WithWeightDecay::inner_loss_uses_outer() const { return base_.inner_loss_uses_outer(); }
std::optional<LossConstants> WithWeightDecay::loss_constants(const Tensor& x) const {
  std::optional<LossConstants> constants = base_.loss_constants(x);
  if (constants) {
    constants->strong_convexity = (constants->strong_convexity + decay_) * (1 - 1e-15);
    constants->smoothness = (constants->smoothness + decay_) * (1 + 1e-15);
  }
  return constants;
}
std::optional<EvaluationErrors> WithWeightDecay::evaluation_errors(const Tensor& w, const Tensor& x) const {
  std::optional<EvaluationErrors> errors = evaluation_errors_of(base_, w, x);
  if (errors) {  // decay, its product with w or v, and the sum are rounded once each
    errors->gradient += accumulated(4, machine_epsilon(w)) * decay_ * norm_above(w);
    errors->hessian += accumulated(4, machine_epsilon(w)) * decay_;
  }
  return errors;
}
void WithWeightDecay::project_outer_(Tensor& x) const { base_.project_outer_(x); }
std::map<std::string, double> WithWeightDecay::metrics(const Tensor& w, const Tensor& x) const {
  return base_.metrics(w, x);
}

}  // namespace bilevel
