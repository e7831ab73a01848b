#include "bilevel/meta/embedded_tasks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace bilevel::meta {

EmbeddedTasks::EmbeddedTasks(const Network& embedding, const Tensor& x, const TaskBatch& tasks,
                             bool with_derivative)
    : rest_(x.size(0) - embedding.parameters()) {
  if (embedding.parameters() == 0) {  // nothing is shared but the start: the examples are no variables
    z_ = x.detach();
    return;
  }
  weights_ = x.detach().narrow(0, 0, embedding.parameters());
  if (with_derivative) weights_ = weights_.clone().requires_grad_(true);
  const at::AutoGradMode graph(with_derivative);
  train_ = embedding(tasks.train_inputs, weights_);
  valid_ = embedding(tasks.valid_inputs, weights_);
  z_ = at::cat(
      {train_.detach().flatten(), valid_.detach().flatten(), x.detach().narrow(0, x.size(0) - rest_, rest_)});
}

Tensor EmbeddedTasks::pullback(const Tensor& u) const {
  if (!weights_.defined()) return u;
  const std::vector<Tensor> parts = u.split_with_sizes({train_.numel(), valid_.numel(), rest_});
  const Tensor in_weights = torch::autograd::grad(
      {train_, valid_}, {weights_}, {parts[0].view(train_.sizes()), parts[1].view(valid_.sizes())})[0];
  return at::cat({in_weights, parts[2]});
}

}  // namespace bilevel::meta
