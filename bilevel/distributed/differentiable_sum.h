#pragma once
// Sums over ranks that can be differentiated, as often as one likes. A loss that is the sum of the ranks'
// parts goes through two functions: shared_by_ranks() where its arguments enter, which are the same on all
// ranks, and summed_over_ranks() where the parts leave. Each is the derivative of the other, so that every
// derivative of the sum is the sum of the parts' derivatives, the same on all ranks.
//
// All ranks must differentiate the same expressions in the same order.

#include <memory>

#include "bilevel/core/tensor.h"

namespace bilevel {

class ProcessGroup;

Tensor shared_by_ranks(const Tensor& t,
                       const std::shared_ptr<ProcessGroup>& group);  // t itself; its derivatives are summed
Tensor summed_over_ranks(const Tensor& t,
                         const std::shared_ptr<ProcessGroup>& group);  // the sum of all ranks' t

}  // namespace bilevel
