#pragma once
// Sums over ranks that can be differentiated, as often as one likes. A loss that is the sum of the ranks'
// parts goes through two functions: shared_by_ranks() where its arguments enter, which are the same on all
// ranks, and summed_over_ranks() where the parts leave. Each is the derivative of the other, so that every
// derivative of the sum is the sum of the parts' derivatives, the same on all ranks.
//
// All ranks must differentiate the same expressions in the same order.

#include "bilevel/core/tensor.h"

namespace bilevel {

class ProcessGroup;

// Who adds up a tensor over all ranks, in place: a group, or whoever counts a part of its sums apart.
class RankSum {
 public:
  virtual ~RankSum() = default;
  virtual void sum_(Tensor& tensor) = 0;
};
class GroupSum : public RankSum {
 public:
  explicit GroupSum(ProcessGroup& group) : group_(group) {}
  void sum_(Tensor& tensor) override;

 private:
  ProcessGroup& group_;
};

// `ranks` must outlive the graphs that are made with it.
Tensor shared_by_ranks(const Tensor& t, RankSum& ranks);    // t itself; its derivatives are summed
Tensor summed_over_ranks(const Tensor& t, RankSum& ranks);  // the sum of all ranks' t

}  // namespace bilevel
