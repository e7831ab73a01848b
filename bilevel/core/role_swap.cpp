#include "bilevel/core/role_swap.h"

namespace bilevel {

Tensor RoleSwap::inner_loss(const Tensor& x, const Tensor& w, const Batch& batch) const {
  return base_.outer_loss(w, x, batch);
}
Tensor RoleSwap::outer_loss(const Tensor& x, const Tensor& w, const Batch& batch) const {
  return base_.inner_loss(w, x, batch);
}
Tensor RoleSwap::initial_inner(uint64_t seed) const { return base_.initial_outer(seed); }
Tensor RoleSwap::initial_outer(uint64_t seed) const { return base_.initial_inner(seed); }
int64_t RoleSwap::inner_samples() const { return base_.outer_samples(); }
int64_t RoleSwap::outer_samples() const { return base_.inner_samples(); }

// The base's own gradients, which may be closed forms.
Tensor RoleSwap::inner_gradient(const Tensor& x, const Tensor& w, const Batch& batch) const {
  return base_.outer_gradients(w, x, batch).x;
}
Tensor RoleSwap::inner_gradient_in_outer(const Tensor& x, const Tensor& w, const Batch& batch) const {
  return base_.outer_gradients(w, x, batch).w;
}

}  // namespace bilevel
