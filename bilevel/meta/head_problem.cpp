#include "bilevel/meta/head_problem.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/meta/head_products.h"
#include "bilevel/meta/task_loss.h"

namespace bilevel::meta {
namespace {

Tensor outputs_of(const Tensor& features, const Tensor& matrix, const Tensor& bias) {
  return at::baddbmm(bias.unsqueeze(1), features, matrix.transpose(1, 2));
}

// What the targets look like as outputs: one-hot rows, or themselves.
Tensor as_outputs(const Tensor& targets, int64_t outputs, const at::TensorOptions& tensors) {
  if (!are_classes(targets)) return targets.to(tensors);
  return at::one_hot(targets, outputs).to(tensors);
}

}  // namespace

// The products at one point; a direction V is split as w is.
class HeadLinearization : public Linearization {
 public:
  HeadLinearization(const HeadProblem& problem, const Tensor& w, const Tensor& z)
      : problem_(problem),
        w_(w),
        head_(problem.split(w)),
        features_(problem.train_features(z)),
        size_(z.size(0)) {
    const Tensor outputs = head_outputs(features_, head_.matrix, head_.bias);
    scale_ = 1.0 / static_cast<double>(features_.size(1));
    if (problem.classes_) {
      probabilities_ = outputs.softmax(2);
      slopes_ = (probabilities_ - problem.train_one_hot_) * scale_;
    } else {
      scale_ *= 2;
      slopes_ = (outputs - problem.train_one_hot_) * scale_;
    }
  }

  Tensor gradient() override { return pulled_back(slopes_, features_, w_); }

  Tensor hessian(const Tensor& v) override {
    const auto direction = problem_.split(v);
    return pulled_back(curved(head_outputs(features_, direction.matrix, direction.bias)), features_, v);
  }

  Tensor cross(const Tensor& v) override {
    const auto direction = problem_.split(v);
    return cross_with(direction, curved(head_outputs(features_, direction.matrix, direction.bias)));
  }

  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) override {
    const auto direction = problem_.split(v);
    const Tensor bent = curved(head_outputs(features_, direction.matrix, direction.bias));
    return {pulled_back(bent, features_, v), cross_with(direction, bent)};
  }

  Tensor cross_transposed(const Tensor& u) override {
    const Tensor moved = problem_.train_features(u);
    // The outputs move by u W'; the bias stays where it is.
    const Tensor bent = curved(head_outputs(moved, head_.matrix, at::zeros_like(head_.bias)));
    Tensor result = head_pullback(bent, features_);
    const Tensor moving = at::bmm(slopes_.transpose(1, 2), moved).flatten(1);
    result.narrow(1, 0, moving.size(1)).add_(moving);
    return result.flatten();
  }

  // The model is linear in w: the Gauss-Newton matrix is the Hessian.
  Tensor gauss_newton(const Tensor& v) override { return hessian(v); }

 private:
  // The loss's second derivative in the outputs.
  Tensor curved(const Tensor& s) const {
    if (!probabilities_.defined()) return s * scale_;
    const Tensor weighted = probabilities_ * s;
    return (weighted - probabilities_ * weighted.sum(2, /*keepdim=*/true)) * scale_;
  }
  Tensor pulled_back(const Tensor& slopes, const Tensor& features, const Tensor& ridge_of) const {
    const Tensor data = head_pullback(slopes, features).flatten();
    return problem_.options_.ridge == 0 ? data : at::add(data, ridge_of, 2 * problem_.options_.ridge);
  }
  Tensor cross_with(const HeadProblem::Head& direction, const Tensor& bent) const {
    const Tensor train =
        feature_pullback(slopes_, direction.matrix).add_(feature_pullback(bent, head_.matrix)).flatten();
    Tensor result = at::zeros({size_}, train.options());
    result.narrow(0, 0, train.size(0)).copy_(train);
    return result;
  }

  const HeadProblem& problem_;
  Tensor w_;
  HeadProblem::Head head_;
  Tensor features_, probabilities_, slopes_;
  int64_t size_;
  double scale_;
};

void HeadOptions::validate() const { require_nonnegative("ridge", ridge); }

HeadProblem::HeadProblem(const TaskBatch& tasks, int64_t features, int64_t outputs,
                         const HeadOptions& options, const at::TensorOptions& tensors)
    : options_(options),
      tensors_(tensors),
      train_targets_(tasks.train_targets),
      valid_targets_(tasks.valid_targets),
      train_one_hot_(as_outputs(tasks.train_targets, outputs, tensors)),
      valid_one_hot_(as_outputs(tasks.valid_targets, outputs, tensors)),
      classes_(are_classes(tasks.train_targets)),
      tasks_(tasks.tasks()),
      features_(features),
      outputs_(outputs) {
  options_.validate();
  outer_.add("train", {tasks_, train_targets_.size(1), features_});
  outer_.add("valid", {tasks_, valid_targets_.size(1), features_});
  if (options_.learned_start) outer_.add("start", {outputs_ * (features_ + 1)});
}

HeadProblem::Head HeadProblem::split(const Tensor& w) const {
  const std::vector<Tensor> parts =
      w.view({tasks_, outputs_ * (features_ + 1)}).split_with_sizes({outputs_ * features_, outputs_}, 1);
  return {parts[0].unflatten(1, {outputs_, features_}), parts[1]};
}

Tensor HeadProblem::train_features(const Tensor& z) const { return outer_.split(z)[0]; }
Tensor HeadProblem::valid_features(const Tensor& z) const { return outer_.split(z)[1]; }

Tensor HeadProblem::inner_loss(const Tensor& w, const Tensor& z, const Batch& /*batch*/) const {
  const Head head = split(w);
  const Tensor loss =
      task_losses(outputs_of(train_features(z), head.matrix, head.bias), train_targets_).sum();
  return options_.ridge == 0 ? loss : loss + options_.ridge * w.dot(w);
}

Tensor HeadProblem::outer_loss(const Tensor& w, const Tensor& z, const Batch& /*batch*/) const {
  return task_losses(valid_outputs(w, z), valid_targets_).mean();
}

Tensor HeadProblem::initial_inner(uint64_t /*seed*/) const {
  return at::zeros({tasks_ * outputs_ * (features_ + 1)}, tensors_);
}

Tensor HeadProblem::initial_outer(uint64_t seed) const {
  return Random(named_seed(seed, "features")).normal({outer_.size()}, tensors_);
}

std::unique_ptr<Linearization> HeadProblem::linearize(const Tensor& w, const Tensor& z,
                                                      const Batch& /*batch*/) const {
  return std::make_unique<HeadLinearization>(*this, w, z);
}

Tensor HeadProblem::inner_gradient(const Tensor& w, const Tensor& z, const Batch& /*batch*/) const {
  return HeadLinearization(*this, w, z).gradient();
}

OuterGradients HeadProblem::outer_gradients(const Tensor& w, const Tensor& z, const Batch& /*batch*/) const {
  const Head head = split(w);
  const Tensor features = valid_features(z);
  const Tensor outputs = head_outputs(features, head.matrix, head.bias);
  const double scale = (classes_ ? 1.0 : 2.0) / static_cast<double>(features.size(0) * features.size(1));
  const Tensor slopes = ((classes_ ? outputs.softmax(2) : outputs) - valid_one_hot_) * scale;
  OuterGradients result;
  result.loss = task_losses(outputs, valid_targets_).mean();
  result.w = head_pullback(slopes, features).flatten();
  result.x = at::zeros_like(z);
  const Layout::Entry& valid = outer_.entries()[1];
  result.x.narrow(0, valid.offset, valid.size).copy_(feature_pullback(slopes, head.matrix).flatten());
  return result;
}

Tensor HeadProblem::inner_start(const Tensor& z) const {
  if (!options_.learned_start) return {};
  return outer_.split(z)[2].repeat({tasks_});
}

Tensor HeadProblem::valid_outputs(const Tensor& w, const Tensor& z) const {
  const Head head = split(w);
  return outputs_of(valid_features(z), head.matrix, head.bias);
}

}  // namespace bilevel::meta
