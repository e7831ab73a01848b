#pragma once
// How to learn across tasks, by the names of the literature: what tasks share (x), what each has for itself
// (w), how w is found, and how x learns from it. The estimators are the library's own; the tasks of a
// meta-batch are one problem with a block of w for each, and are solved together.
//
//   aid                   shared embedding, linear heads with a ridge; implicit by CG (AID-BiO)
//   itd                   the same, through the inner steps (ITD-BiO); truncated where asked
//   anil                  shared embedding and the heads' start, through the steps
//   maml                  the start of the whole network, through the steps
//   maml-first-order      the same without second derivatives
//   imaml                 the same with a proximal term to the start; implicit by CG
//   hyper-representation  K-RMD: the first layers, the centre and start of the others, the weights that hold
//                         each layer to it and the inner rate; through the last K steps, or all

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/core/inner.h"
#include "bilevel/core/layout.h"
#include "bilevel/hypergradients/estimator.h"
#include "bilevel/meta/network.h"
#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

struct LearnerOptions {
  std::string name = "aid";
  int64_t inner_steps = 10;  // T
  double growth = 0;         // aid "increasing": T_k = ceil(growth (k+1)^(1/4)), k from 0; 0 = T as given
  double inner_rate = 0.1;   // of gradient descent; where the learner begins, if it learns it
  int64_t terms = 10;        // CG steps of aid and imaml, at most
  double tolerance = 0;      // of CG, relative, each task for itself; 0 = all the steps
  std::string curvature = "hessian";  // of CG; networks' Hessians are indefinite: gauss-newton for imaml
  int64_t truncate = 0;  // K: reverse through the last K steps, for itd and hyper-representation; 0 = all
  double ridge = 0.01;   // of aid's and itd's heads; > 0 for aid, or the heads are not determined
  double proximal = 1;   // lambda / 2 |w - x|^2 of imaml; > 0
  double centre_weight = 0.1;  // where hyper-representation's rho_j begin; > 0
  void validate() const;
};

const std::vector<std::string>& learner_names();
// Of the options that not every learner reads, those that this one does, by their names in the job's field
// table.
std::vector<std::string> options_read_by(const std::string& learner);
// What a learner of this name does well with on small tasks.
LearnerOptions default_learner_options(const std::string& name);

class Learner {
 public:
  // `network` is the whole one, from an example to the scores.
  Learner(const LearnerOptions& options, const Network& network, const at::TensorOptions& tensors);

  const LearnerOptions& options() const { return options_; }
  const Network& embedding() const { return embedding_; }        // what tasks share; perhaps no layer
  const Network& task_network() const { return task_network_; }  // what each task has for itself
  const Layout& outer_layout() const { return outer_; }          // of x: "embedding", then what is not
  int64_t task_parameters() const { return task_network_.parameters(); }
  Tensor initial_outer(uint64_t seed) const;
  int64_t inner_steps(int64_t iteration) const;  // T_k

  // The derivative in x of the mean validation loss of the tasks after each has been learned. Throws
  // NotFiniteError where the numbers end.
  Hypergradient hypergradient(const Tensor& x, const TaskBatch& tasks, int64_t iteration = 0) const;
  // What the validation examples become once each task has been learned from its training examples: tasks x
  // examples x outputs. The validation targets are not looked at.
  Tensor outputs(const Tensor& x, const TaskBatch& tasks, int64_t iteration = 0) const;

 private:
  class Inner;  // the problem of one meta-batch
  std::unique_ptr<HypergradientEstimator> make_estimator(int64_t tasks, int64_t steps) const;
  InnerOptions inner_options(int64_t iteration) const;
  TaskBatch on_device(const TaskBatch& tasks) const;

  LearnerOptions options_;
  at::TensorOptions tensors_;
  Network network_, embedding_, task_network_;
  Layout outer_;
};

}  // namespace bilevel::meta
