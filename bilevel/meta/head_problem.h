#pragma once
// A linear head for each of many tasks on features that are given: the inner problem of AID-BiO, ITD-BiO (Ji,
// Yang and Liang 2021, Eq. 10) and ANIL, with every derivative in closed form as batched matrix products.
//
//     g(w, z) = sum over tasks of [loss of task i's training examples + ridge |w_i|^2]
//     f(w, z) = mean over tasks of the loss of its validation examples
//
// z = [training features, validation features, the heads' common start where it is learned]. The features are
// variables here, so that all products with the cross derivative of g are matrix products too; what they mean
// for the embedding behind the features is one backward pass at the end (meta/embedded_tasks.h).
//
// Softmax: with G = (P - Y) / n, S = F V' for a direction V and R = P o (S - <P, S>) / n,
//     grad = G'F + 2 ridge W,    H V = R'F + 2 ridge V,    C V = G V + R W.
// A task's block of w is its matrix (outputs x features), row by row, and its bias.

#include <memory>

#include "bilevel/core/layout.h"
#include "bilevel/core/problem.h"
#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

struct HeadOptions {
  double ridge = 0;            // 0 leaves the softmax's heads undetermined
  bool learned_start = false;  // z holds where every head begins (ANIL)
  void validate() const;
};

class HeadProblem : public Problem {
 public:
  // Of `tasks` only the targets are used, on the device of the features to come.
  HeadProblem(const TaskBatch& tasks, int64_t features, int64_t outputs, const HeadOptions& options,
              const at::TensorOptions& tensors);

  Tensor inner_loss(const Tensor& w, const Tensor& z, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& z, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // zero
  Tensor initial_outer(uint64_t seed) const override;  // normal features, for tests
  int64_t inner_samples() const override { return train_targets_.size(0) * train_targets_.size(1); }
  int64_t outer_samples() const override { return valid_targets_.size(0) * valid_targets_.size(1); }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& z,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& z, const Batch& batch) const override;
  OuterGradients outer_gradients(const Tensor& w, const Tensor& z, const Batch& batch) const override;
  Tensor inner_start(const Tensor& z) const override;

  Tensor valid_outputs(const Tensor& w, const Tensor& z) const;  // tasks x examples x outputs
  const Layout& outer_layout() const { return outer_; }
  int64_t tasks() const { return tasks_; }

 private:
  friend class HeadLinearization;
  struct Head {
    Tensor matrix;  // tasks x outputs x features
    Tensor bias;    // tasks x outputs
  };
  Head split(const Tensor& w) const;
  Tensor train_features(const Tensor& z) const;
  Tensor valid_features(const Tensor& z) const;

  HeadOptions options_;
  at::TensorOptions tensors_;
  Tensor train_targets_, valid_targets_;
  Tensor train_one_hot_, valid_one_hot_;  // the targets as outputs would have them
  bool classes_;
  int64_t tasks_, features_, outputs_;
  Layout outer_;
};

}  // namespace bilevel::meta
