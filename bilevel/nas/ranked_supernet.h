#pragma once
// A supernet whose batches are divided among ranks: each computes its part (SupernetProblem::divide), and the
// sums over all ranks are what one process computes, to rounding.

#include <memory>
#include <optional>

#include "bilevel/distributed/distributed_problem.h"
#include "bilevel/nas/supernet_engine.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

class RankedSupernet : public SupernetEngine {
 public:
  // `divided` has been divided among the group's ranks and must outlive it. `engine`, where there is one,
  // computes its parts.
  explicit RankedSupernet(const SupernetProblem& divided, std::unique_ptr<SupernetEngine> engine = nullptr);

  Tensor inner_gradient_at(const Tensor& w, const Tensor& mixture, const Batch& batch) const override;

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override { return part_.initial_inner(seed); }
  Tensor initial_outer(uint64_t seed) const override { return part_.initial_outer(seed); }
  int64_t inner_samples() const override { return part_.inner_samples(); }
  int64_t outer_samples() const override { return part_.outer_samples(); }
  const Layout* inner_layout() const override { return part_.inner_layout(); }
  bool inner_loss_uses_outer() const override { return part_.inner_loss_uses_outer(); }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;

 private:
  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<SupernetEngine> engine_;
  const SupernetEngine& part_;
  DistributedProblem sum_;
};

}  // namespace bilevel::nas
