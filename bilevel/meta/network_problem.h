#pragma once
// A network of its own for each of many tasks, that begins at a common point and may be held to it: the inner
// problem of MAML (nothing holds it), of iMAML (proximal term, Rajeswaran et al. 2019) and of K-RMD's
// hyper-representation (learned weights of the distance, learned rate, learned features).
//
//     g(w, z) = sum over tasks of [loss of its training examples + sum_j rho_j |w_ij - c_j|^2],  w_0 = c
//     f(w, z) = mean over tasks of the loss of its validation examples
//
// j counts the layers. z = [training features and validation features where these are learned, c, log rho and
// log rate where these are]. K-RMD prints a sum over the training examples; here it is their mean, as in its
// other experiments, which changes the unit of the rate and of rho and nothing else.

#include <optional>
#include <vector>

#include "bilevel/core/layout.h"
#include "bilevel/core/problem.h"
#include "bilevel/meta/network.h"
#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

struct CentreOptions {
  bool learned_features = false;  // the examples belong to z
  bool learned_weights = false;   // rho_j and the rate belong to z, by their logarithms
  double weight = 0;              // rho of all layers where it is not learned; iMAML's lambda is twice this
  void validate() const;
};

class NetworkProblem : public Problem {
 public:
  // Where the features are learned, only the targets of `tasks` are used.
  NetworkProblem(const TaskBatch& tasks, const Network& network, const CentreOptions& options);

  Tensor inner_loss(const Tensor& w, const Tensor& z, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& z, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // undefined: it begins at c
  Tensor initial_outer(uint64_t seed) const override;  // undefined: z comes from the learner
  int64_t inner_samples() const override { return train_targets_.size(0) * train_targets_.size(1); }
  int64_t outer_samples() const override { return valid_targets_.size(0) * valid_targets_.size(1); }
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& z, const Batch& batch) const override;
  Tensor inner_start(const Tensor& z) const override;
  Tensor inner_rate(const Tensor& z) const override;
  bool inner_loss_uses_outer() const override;

  Tensor valid_outputs(const Tensor& w, const Tensor& z) const;
  const Layout& outer_layout() const { return outer_; }

 private:
  Tensor outputs(const Tensor& inputs, const Tensor& w) const;
  Tensor distance(const Tensor& w, const std::vector<Tensor>& z) const;

  CentreOptions options_;
  const Network& network_;  // must outlive the problem
  Tensor train_inputs_, valid_inputs_;
  Tensor train_targets_, valid_targets_;
  int64_t tasks_;
  Tensor layer_sizes_;
  Layout outer_;
  size_t centre_;  // where z holds it
};

}  // namespace bilevel::meta
