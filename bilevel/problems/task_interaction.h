#pragma once
// How strongly tasks should pull at each other, learned on a validation set: K-RMD's section 4.2.2 and
// appendix G.2 (after Franceschi et al. 2017).
//
//     g(w, x) = l(w) + sum_ij C_ij |w_i - w_j|^2 + rho sum_i |w_i|^2,    f(w) = mean cross entropy,
//     validation C = A + A',  A_ij = softplus(B_ij),  rho = softplus(nu),           x = (B row by row, nu)
//
// The sum goes over all ordered pairs, as printed, so that a pair counts twice and the diagonal not at all
// (B_ii has no effect; its derivative is zero). Where the classes are the tasks w_i are the weights of class
// i and l is the mean cross entropy of one softmax regression. Where tasks have their own examples w_i is a
// whole softmax regression, classes x features, and l is the number of tasks times the mean cross entropy of
// all examples: with equally many examples, the sum of the tasks' means, so that rates and regularisers do
// not depend on how many tasks there are. The model is linear in w: everything is in closed form.
//
// Examples lie in blocks, one per softmax regression, filled up with zeros to the length of the longest.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "bilevel/core/problem.h"
#include "bilevel/problems/task_sets.h"

namespace bilevel {

enum class Coupling {
  learned,
  none  // C = 0, x = (nu): tasks on their own, or one task of all examples (task_sets.h: pooled)
};

struct TaskInteractionOptions {
  Coupling coupling = Coupling::learned;
  // Of the inner steps; 0 = 0.2 / the data's curvature at w = 0, which leaves coupling and regulariser room
  // for eight times that curvature before gradient descent is unstable at 2 / rate.
  double rate = 0;
  // The start, in units of that curvature, so that it does not depend on the scale of the features: the
  // curvature 2 rho of the regulariser, and that of the coupling, 4 tasks C_ij, all pairs alike.
  double first_regularizer = 0.02;
  double first_coupling = 0.1;
  void validate() const;  // throws std::invalid_argument naming the option, its value and the bound
};

class TaskInteraction : public Problem {
 public:
  TaskInteraction(TaskSets sets, const TaskInteractionOptions& options, const at::TensorOptions& tensors);

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // zero
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override { return sets_.train.size(); }
  int64_t outer_samples() const override { return sets_.valid.size(); }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  // Keeps gradient descent stable at rate() by scaling C back where it has grown too large, and the inner
  // problem from becoming singular by a least rho.
  void project_outer_(Tensor& x) const override;
  // train_accuracy and valid_accuracy, percent.
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;

  Tensor interaction(const Tensor& x) const;  // C, tasks x tasks; zeros without coupling
  Tensor regularizer(const Tensor& x) const;  // rho, one number
  double accuracy(const Tensor& w, const TaskExamples& examples) const;  // percent
  double loss(const Tensor& w, const TaskExamples& examples) const;      // mean cross entropy
  Tensor models(const Tensor& w) const;                                  // tasks x (classes x) features

  const TaskSets& sets() const { return sets_; }
  double curvature() const { return curvature_; }  // of the data's term at w = 0
  double rate() const { return rate_; }
  // A bound on the largest eigenvalue of H at this x and every w.
  double smoothness_bound(const Tensor& x) const;
  // The same for every x that project_outer_ lets stand.
  double largest_curvature() const;

  // Examples in blocks; weights are 0 where a block is only filled up.
  struct Blocks {
    Tensor features;  // blocks x rows x features
    Tensor labels;    // blocks x rows
    Tensor weights;   // blocks x rows
  };

 private:
  Blocks blocks_of(const TaskExamples& examples, double scale, const Batch& batch) const;
  Blocks train_blocks(const Batch& batch) const;
  Blocks valid_blocks(const Batch& batch) const;
  double percent_right(const Blocks& blocks, const Tensor& w) const;
  Tensor scores(const Blocks& blocks, const Tensor& w) const;  // blocks x rows x classes
  Tensor cross_entropy(const Blocks& blocks, const Tensor& w) const;
  Tensor cross_entropy_gradient(const Blocks& blocks, const Tensor& probabilities) const;
  Tensor quadratic(const Tensor& x) const;  // the Hessian of coupling and regulariser between tasks
  double coupling_curvature(const Tensor& x) const;
  double room() const;  // of coupling and regulariser beside the data's curvature

  TaskSets sets_;
  TaskInteractionOptions options_;
  at::TensorOptions tensors_;
  int64_t features_ = 0, blocks_ = 0, tasks_ = 0;
  Blocks train_, valid_;
  double gram_ = 0, curvature_ = 0, rate_ = 0;  // gram_: the largest eigenvalue of the weighted X'X
};

}  // namespace bilevel
