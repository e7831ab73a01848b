#pragma once
// A problem whose batches are divided among the ranks of a group. Each rank evaluates its slice of every
// batch (rank_slice.h), weighted by its part of the batch, and the ranks' results are summed: a loss that is
// a mean over examples plus a regulariser counts the regulariser exactly once, uneven slices come out right,
// and a rank whose slice is empty adds zero. Every gradient and every product is one call of the group. All
// ranks get the same bits, so that x, w and the states of optimisers stay the same on each without being
// sent, and every estimator and algorithm works on it as on the problem itself; an Oracle around it counts
// what one process would.
//
// A set that counts one example, as of problems without any, is evaluated by every rank in full.
//
// What a problem draws from batch.seed for a whole batch, such as dropout, would be drawn again for every
// slice: the check below refuses such a problem.

#include <memory>
#include <string>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"
#include "bilevel/distributed/differentiable_sum.h"
#include "bilevel/distributed/process_group.h"
#include "bilevel/distributed/rank_slice.h"

namespace bilevel {

// Who takes a rank's part of a batch. A problem whose examples see each other, as through batch norm, takes
// it itself: given a whole batch, its losses are this rank's weighted part, and their derivatives those of
// the sum of all ranks' parts.
enum class Division { by_slices, by_problem };

class DistributedProblem : public Problem, public BoundedEvaluation {
 public:
  // `base` must outlive it; it is the same on all ranks.
  DistributedProblem(const Problem& base, std::shared_ptr<ProcessGroup> group,
                     Division division = Division::by_slices);

  // Whether the losses at (w, x) on the full sets, and on a few examples, are what the slices sum to, up to
  // rounding. Throws std::invalid_argument that begins with `name` where they are not.
  void check(const std::string& name, const Tensor& w, const Tensor& x) const;

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
  // The whole batch on every rank, for callers that take the loss apart themselves.
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor inner_start(const Tensor& x) const override;
  Tensor inner_rate(const Tensor& x) const override;
  const Layout* inner_layout() const override;
  bool inner_loss_uses_outer() const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;
  void project_outer_(Tensor& x) const override;
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;  // by every rank

 private:
  RankSlice own_part(const Batch& batch, int64_t population) const;
  bool is_replicated(int64_t population) const;  // every rank evaluates it in full
  using Loss = Tensor (Problem::*)(const Tensor& w, const Tensor& x, const Batch& batch) const;
  Tensor loss(Loss which, const Tensor& w, const Tensor& x, const Batch& batch, int64_t population) const;
  void check_loss(const std::string& text, Loss which, const Tensor& w, const Tensor& x, const Batch& batch,
                  int64_t population) const;

  const Problem& base_;
  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<RankSum> graph_sums_;  // where graphs keep its address
  Division division_;
};

}  // namespace bilevel
