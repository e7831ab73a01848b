#include "bilevel/meta/network_problem.h"

#include <ATen/ATen.h>

#include <cmath>

#include "bilevel/core/require.h"
#include "bilevel/meta/task_loss.h"

namespace bilevel::meta {
namespace {

std::vector<int64_t> feature_shape(const Tensor& targets, const Network& network) {
  std::vector<int64_t> shape = {targets.size(0), targets.size(1)};
  shape.insert(shape.end(), network.input_shape().begin(), network.input_shape().end());
  return shape;
}

}  // namespace

void CentreOptions::validate() const { require_nonnegative("weight", weight); }

NetworkProblem::NetworkProblem(const TaskBatch& tasks, const Network& network, const CentreOptions& options)
    : options_(options),
      network_(network),
      train_targets_(tasks.train_targets),
      valid_targets_(tasks.valid_targets),
      tasks_(tasks.train_targets.size(0)),
      centre_(options.learned_features ? 2 : 0) {
  options_.validate();
  if (options_.learned_features) {
    outer_.add("train", feature_shape(train_targets_, network_));
    outer_.add("valid", feature_shape(valid_targets_, network_));
  } else {
    train_inputs_ = tasks.train_inputs;
    valid_inputs_ = tasks.valid_inputs;
  }
  outer_.add("centre", {network_.parameters()});
  if (options_.learned_weights) {
    layer_sizes_ = at::tensor(network_.parameters_by_layer(), at::kLong).to(tasks.train_targets.device());
    outer_.add("log_weights", {network_.layers()});
    outer_.add("log_rate", {1});
  }
}

Tensor NetworkProblem::outputs(const Tensor& inputs, const Tensor& w) const {
  return network_(inputs, w.view({tasks_, network_.parameters()}));
}

Tensor NetworkProblem::distance(const Tensor& w, const std::vector<Tensor>& z) const {
  const Tensor squares = (w.view({tasks_, network_.parameters()}) - z[centre_]).square();
  if (!options_.learned_weights) return options_.weight * squares.sum();
  const Tensor weights = z[centre_ + 1].exp().repeat_interleave(layer_sizes_, 0, network_.parameters());
  return squares.sum(0).dot(weights);
}

Tensor NetworkProblem::inner_loss(const Tensor& w, const Tensor& z, const Batch& /*batch*/) const {
  const std::vector<Tensor> parts = outer_.split(z);
  const Tensor& inputs = options_.learned_features ? parts[0] : train_inputs_;
  const Tensor loss = task_losses(outputs(inputs, w), train_targets_).sum();
  const bool held = options_.learned_weights || options_.weight > 0;
  return held ? loss + distance(w, parts) : loss;
}

Tensor NetworkProblem::outer_loss(const Tensor& w, const Tensor& z, const Batch& /*batch*/) const {
  return task_losses(valid_outputs(w, z), valid_targets_).mean();
}

std::optional<InnerParts> NetworkProblem::inner_parts(const Tensor& w, const Tensor& z,
                                                      const Batch& /*batch*/) const {
  const std::vector<Tensor> parts = outer_.split(z);
  InnerParts result;
  result.outputs = outputs(options_.learned_features ? parts[0] : train_inputs_, w);
  result.loss = [this](const Tensor& outputs) { return task_losses(outputs, train_targets_).sum(); };
  if (options_.learned_weights || options_.weight > 0) result.regularizer = distance(w, parts);
  return result;
}

Tensor NetworkProblem::initial_inner(uint64_t /*seed*/) const { return {}; }
Tensor NetworkProblem::initial_outer(uint64_t /*seed*/) const { return {}; }

Tensor NetworkProblem::inner_start(const Tensor& z) const {
  return outer_.split(z)[centre_].repeat({tasks_});
}

Tensor NetworkProblem::inner_rate(const Tensor& z) const {
  if (!options_.learned_weights) return {};
  return outer_.split(z)[centre_ + 2].exp();
}

bool NetworkProblem::inner_loss_uses_outer() const {
  return options_.learned_features || options_.learned_weights || options_.weight > 0;
}

Tensor NetworkProblem::valid_outputs(const Tensor& w, const Tensor& z) const {
  return outputs(options_.learned_features ? outer_.split(z)[1] : valid_inputs_, w);
}

}  // namespace bilevel::meta
