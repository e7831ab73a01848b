#include "bilevel/distributed/differentiable_sum.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "bilevel/distributed/process_group.h"

namespace bilevel {
namespace {

// Functions of a graph keep tensors and plain values, so that who sums is kept by its address.
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct SumOverRanks : Function<SumOverRanks> {
  static Tensor forward(AutogradContext* context, const Tensor& t, int64_t ranks);
  static variable_list backward(AutogradContext* context, variable_list gradients);
};
struct SharedByRanks : Function<SharedByRanks> {
  static Tensor forward(AutogradContext* context, const Tensor& t, int64_t ranks);
  static variable_list backward(AutogradContext* context, variable_list gradients);
};

RankSum& ranks_at(int64_t address) { return *reinterpret_cast<RankSum*>(address); }

Tensor SumOverRanks::forward(AutogradContext* context, const Tensor& t, int64_t ranks) {
  context->saved_data["ranks"] = ranks;
  Tensor sum = t.detach().clone(at::MemoryFormat::Contiguous);
  ranks_at(ranks).sum_(sum);
  return sum;
}
variable_list SumOverRanks::backward(AutogradContext* context, variable_list gradients) {
  if (!gradients[0].defined()) return {Tensor(), Tensor()};
  return {SharedByRanks::apply(gradients[0], context->saved_data["ranks"].toInt()), Tensor()};
}
Tensor SharedByRanks::forward(AutogradContext* context, const Tensor& t, int64_t ranks) {
  context->saved_data["ranks"] = ranks;
  return t.view_as(t);
}
variable_list SharedByRanks::backward(AutogradContext* context, variable_list gradients) {
  if (!gradients[0].defined()) return {Tensor(), Tensor()};
  return {SumOverRanks::apply(gradients[0], context->saved_data["ranks"].toInt()), Tensor()};
}

int64_t address_of(RankSum& ranks) { return reinterpret_cast<int64_t>(&ranks); }

}  // namespace

void GroupSum::sum_(Tensor& tensor) { group_.sum_(tensor); }

Tensor shared_by_ranks(const Tensor& t, RankSum& ranks) { return SharedByRanks::apply(t, address_of(ranks)); }
Tensor summed_over_ranks(const Tensor& t, RankSum& ranks) {
  return SumOverRanks::apply(t, address_of(ranks));
}

}  // namespace bilevel
