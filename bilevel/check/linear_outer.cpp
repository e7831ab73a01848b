#include "bilevel/check/linear_outer.h"

#include <ATen/ATen.h>

#include <utility>

#include "bilevel/core/random.h"

namespace bilevel {

WithLinearOuter::WithLinearOuter(const Problem& base, Tensor p, Tensor q)
    : base_(base), p_(std::move(p)), q_(std::move(q)) {}

Tensor WithLinearOuter::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.inner_loss(w, x, batch);
}
Tensor WithLinearOuter::outer_loss(const Tensor& w, const Tensor& x, const Batch& /*batch*/) const {
  return p_.dot(w) + q_.dot(x);
}
Tensor WithLinearOuter::initial_inner(uint64_t seed) const { return base_.initial_inner(seed); }
Tensor WithLinearOuter::initial_outer(uint64_t seed) const { return base_.initial_outer(seed); }
int64_t WithLinearOuter::inner_samples() const { return base_.inner_samples(); }
std::unique_ptr<Linearization> WithLinearOuter::linearize(const Tensor& w, const Tensor& x,
                                                          const Batch& batch) const {
  return base_.linearize(w, x, batch);
}
Tensor WithLinearOuter::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.inner_gradient(w, x, batch);
}
Tensor WithLinearOuter::inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.inner_gradient_in_outer(w, x, batch);
}
OuterGradients WithLinearOuter::outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return {.loss = outer_loss(w, x, batch), .w = p_, .x = q_};
}
std::optional<InnerParts> WithLinearOuter::inner_parts(const Tensor& w, const Tensor& x,
                                                       const Batch& batch) const {
  return base_.inner_parts(w, x, batch);
}
Tensor WithLinearOuter::inner_start(const Tensor& x) const { return base_.inner_start(x); }
Tensor WithLinearOuter::inner_rate(const Tensor& x) const { return base_.inner_rate(x); }
const Layout* WithLinearOuter::inner_layout() const { return base_.inner_layout(); }
bool WithLinearOuter::inner_loss_uses_outer() const { return base_.inner_loss_uses_outer(); }
void WithLinearOuter::project_outer_(Tensor& x) const { base_.project_outer_(x); }

WithLinearOuter with_random_outer(const Problem& base, const OuterGradients& outer, uint64_t seed) {
  const Tensor direction =
      Random(named_seed(seed, "a random outer gradient")).normal(outer.w.sizes(), outer.w.options());
  const Tensor norm = outer.w.norm();
  const Tensor length = at::where(norm > 0, norm, at::ones_like(norm));
  return {base, direction * (length / direction.norm()), outer.x};
}

}  // namespace bilevel
