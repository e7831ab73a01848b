#include "bilevel/meta/task_loss.h"

#include <ATen/ATen.h>

#include "bilevel/problems/softmax_loss.h"

namespace bilevel::meta {

bool are_classes(const Tensor& targets) { return targets.scalar_type() == at::kLong; }

Tensor task_losses(const Tensor& outputs, const Tensor& targets) {
  if (!are_classes(targets)) return (outputs - targets).square().sum(2).mean(1);
  const Tensor each = cross_entropies(outputs.flatten(0, 1), targets.flatten());
  return each.view({outputs.size(0), outputs.size(1)}).mean(1);
}

Tensor task_accuracies(const Tensor& outputs, const Tensor& targets) {
  return outputs.argmax(2).eq(targets).to(at::kDouble).mean(1).mul(100).cpu();
}

}  // namespace bilevel::meta
