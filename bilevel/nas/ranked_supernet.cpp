#include "bilevel/nas/ranked_supernet.h"

#include <utility>

namespace bilevel::nas {

RankedSupernet::RankedSupernet(const SupernetProblem& divided, std::unique_ptr<SupernetEngine> engine)
    : group_(divided.ranks().group),
      engine_(std::move(engine)),
      part_(engine_ ? static_cast<const SupernetEngine&>(*engine_) : divided),
      sum_(part_, group_, Division::by_problem) {}

Tensor RankedSupernet::inner_gradient_at(const Tensor& w, const Tensor& mixture, const Batch& batch) const {
  Tensor gradient = part_.inner_gradient_at(w, mixture, batch);
  group_->sum_(gradient);
  return gradient;
}

Tensor RankedSupernet::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return sum_.inner_loss(w, x, batch);
}
Tensor RankedSupernet::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return sum_.outer_loss(w, x, batch);
}
std::unique_ptr<Linearization> RankedSupernet::linearize(const Tensor& w, const Tensor& x,
                                                         const Batch& batch) const {
  return sum_.linearize(w, x, batch);
}
Tensor RankedSupernet::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return sum_.inner_gradient(w, x, batch);
}
Tensor RankedSupernet::inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return sum_.inner_gradient_in_outer(w, x, batch);
}
OuterGradients RankedSupernet::outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return sum_.outer_gradients(w, x, batch);
}
OuterGradients RankedSupernet::outer_gradient_in_outer(const Tensor& w, const Tensor& x,
                                                       const Batch& batch) const {
  return sum_.outer_gradient_in_outer(w, x, batch);
}

}  // namespace bilevel::nas
