#include "bilevel/distributed/differentiable_sum.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "bilevel/distributed/process_group.h"

namespace bilevel {
namespace {

// Functions of a graph keep tensors and plain values, so the group is kept by its address.
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct SumOverRanks : Function<SumOverRanks> {
  static Tensor forward(AutogradContext* context, const Tensor& t, int64_t group);
  static variable_list backward(AutogradContext* context, variable_list gradients);
};
struct SharedByRanks : Function<SharedByRanks> {
  static Tensor forward(AutogradContext* context, const Tensor& t, int64_t group);
  static variable_list backward(AutogradContext* context, variable_list gradients);
};

// The group outlives the graphs that are made in its sums.
ProcessGroup& group_at(int64_t address) { return *reinterpret_cast<ProcessGroup*>(address); }

Tensor SumOverRanks::forward(AutogradContext* context, const Tensor& t, int64_t group) {
  context->saved_data["group"] = group;
  Tensor sum = t.detach().clone(at::MemoryFormat::Contiguous);
  group_at(group).sum_(sum);
  return sum;
}
variable_list SumOverRanks::backward(AutogradContext* context, variable_list gradients) {
  if (!gradients[0].defined()) return {Tensor(), Tensor()};
  return {SharedByRanks::apply(gradients[0], context->saved_data["group"].toInt()), Tensor()};
}
Tensor SharedByRanks::forward(AutogradContext* context, const Tensor& t, int64_t group) {
  context->saved_data["group"] = group;
  return t.view_as(t);
}
variable_list SharedByRanks::backward(AutogradContext* context, variable_list gradients) {
  if (!gradients[0].defined()) return {Tensor(), Tensor()};
  return {SumOverRanks::apply(gradients[0], context->saved_data["group"].toInt()), Tensor()};
}

int64_t address_of(const std::shared_ptr<ProcessGroup>& group) {
  return reinterpret_cast<int64_t>(group.get());
}

}  // namespace

Tensor shared_by_ranks(const Tensor& t, const std::shared_ptr<ProcessGroup>& group) {
  return SharedByRanks::apply(t, address_of(group));
}
Tensor summed_over_ranks(const Tensor& t, const std::shared_ptr<ProcessGroup>& group) {
  return SumOverRanks::apply(t, address_of(group));
}

}  // namespace bilevel
