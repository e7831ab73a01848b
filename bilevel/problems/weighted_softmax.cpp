#include "bilevel/problems/weighted_softmax.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/label_noise.h"
#include "bilevel/problems/linear_scores.h"
#include "bilevel/problems/softmax_constants.h"
#include "bilevel/problems/softmax_loss.h"
#include "bilevel/problems/softmax_rounding.h"

namespace bilevel {
namespace {

LabelledRows converted(const LabelledExamples& examples, const at::TensorOptions& tensors,
                       FeatureMatrix::Storage storage) {
  const LabelledExamples moved = examples.to(tensors);
  return {FeatureMatrix::from_dense(moved.features, storage), moved.labels};
}

class WeightedLinearization : public Linearization {
 public:
  // `weight_slopes`: d a_i / d x_i, of the batch.
  WeightedLinearization(std::unique_ptr<SoftmaxPoint> point, Tensor weight_slopes, Tensor index,
                        int64_t examples)
      : point_(std::move(point)),
        weight_slopes_(std::move(weight_slopes)),
        index_(std::move(index)),
        examples_(examples) {}

  Tensor gradient() override { return point_->gradient(); }
  Tensor hessian(const Tensor& v) override { return point_->hessian(v); }
  Tensor gauss_newton(const Tensor& v) override { return point_->hessian(v); }  // the model is linear in w
  Tensor cross(const Tensor& v) override { return to_examples(point_->slopes(v)); }
  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) override {
    auto [product, slopes] = point_->hessian_and_slopes(v);
    return {std::move(product), to_examples(slopes)};
  }
  Tensor cross_transposed(const Tensor& u) override {
    if (u.dim() != 1 || u.numel() != examples_ || u.scalar_type() != weight_slopes_.scalar_type()) {
      throw std::invalid_argument(fmt::format(
          "the vector of a transposed cross product must have {} numbers of {}, but has {} of {}", examples_,
          c10::toString(weight_slopes_.scalar_type()), u.numel(), c10::toString(u.scalar_type())));
    }
    return point_->pullback(weight_slopes_ * (index_.defined() ? u.index_select(0, index_) : u));
  }

 private:
  Tensor to_examples(const Tensor& of_batch) const {
    const Tensor values = weight_slopes_ * of_batch;
    if (!index_.defined()) return values;
    return at::zeros({examples_}, values.options()).index_add_(0, index_, values);
  }

  std::unique_ptr<SoftmaxPoint> point_;
  Tensor weight_slopes_, index_;
  int64_t examples_;
};

}  // namespace

WeightedSoftmax::WeightedSoftmax(const CleaningData& data, double regularization,
                                 const at::TensorOptions& tensors, FeatureMatrix::Storage storage)
    : WeightedSoftmax(converted(data.train, tensors, storage), converted(data.valid, tensors, storage),
                      data.classes, regularization, data.replaced, data.wrong) {}

WeightedSoftmax::WeightedSoftmax(LabelledRows train, LabelledRows valid, int64_t classes,
                                 double regularization, Tensor replaced, Tensor wrong)
    : train_(std::move(train)),
      valid_(std::move(valid)),
      layout_{.classes = classes, .features = train_.features.features(), .by_feature = false},
      regularization_(regularization),
      replaced_(std::move(replaced)),
      wrong_(std::move(wrong)) {
  require_nonnegative("regularization", regularization);
  validate_sets(train_, valid_, classes);
}

SoftmaxTerms WeightedSoftmax::terms(const Tensor& x, const Batch& batch) const {
  if (x.dim() != 1 || x.numel() != train_.size() || x.scalar_type() != train_.features.dtype()) {
    throw std::invalid_argument(fmt::format("x must have {} numbers of {}, one per example, but has {} of {}",
                                            train_.size(), c10::toString(train_.features.dtype()), x.numel(),
                                            c10::toString(x.scalar_type())));
  }
  const Tensor weights = batch_rows(x.detach(), batch).sigmoid();  // also checks the index
  SoftmaxTerms result{.data = train_.features,
                      .index = batch.is_full() ? Tensor() : batch.index.contiguous(),
                      .labels = batch_rows(train_.labels, batch).contiguous(),
                      .weights = weights / weights.numel(),
                      .ridge = {}};
  if (regularization_ > 0) result.ridge = at::full({1}, 2 * regularization_, x.options());
  return result;
}

Tensor WeightedSoftmax::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return make_softmax_point(terms(x, batch), layout_, w, false)->gradient();
}

std::unique_ptr<Linearization> WeightedSoftmax::linearize(const Tensor& w, const Tensor& x,
                                                          const Batch& batch) const {
  const SoftmaxTerms at_x = terms(x, batch);
  const auto count = static_cast<double>(at_x.weights.numel());
  return std::make_unique<WeightedLinearization>(make_softmax_point(at_x, layout_, w, true),
                                                 at_x.weights * (1 - at_x.weights * count), at_x.index,
                                                 train_.size());
}

Tensor WeightedSoftmax::inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const SoftmaxTerms at_x = terms(x, batch);
  const auto count = static_cast<double>(at_x.weights.numel());
  const Tensor of_batch = at_x.weights * (1 - at_x.weights * count) *
                          make_softmax_point(at_x, layout_, w, false)->cross_entropies();
  if (!at_x.index.defined()) return of_batch;
  return at::zeros_like(x.detach()).index_add_(0, at_x.index, of_batch);
}

OuterGradients WeightedSoftmax::outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return mean_outer_gradients(valid_, layout_, w, x, batch);
}

Tensor WeightedSoftmax::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Tensor weights = batch_rows(x, batch).sigmoid();
  return weighted_cross_entropy(linear_scores(train_.features, batch.index, layout_.matrix(w)),
                                batch_rows(train_.labels, batch), weights) +
         regularization_ * w.dot(w);
}

Tensor WeightedSoftmax::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  return mean_cross_entropy(valid_, layout_.matrix(w), batch);
}

Tensor WeightedSoftmax::initial_inner(uint64_t /*seed*/) const {
  return at::zeros({layout_.size()}, train_.features.dtype());
}

Tensor WeightedSoftmax::initial_outer(uint64_t /*seed*/) const {
  return at::zeros({train_.size()}, train_.features.dtype());
}

std::map<std::string, double> WeightedSoftmax::metrics(const Tensor& w, const Tensor& x) const {
  std::map<std::string, double> result{{"train_accuracy", accuracy_percent(train_, layout_.matrix(w))},
                                       {"valid_accuracy", accuracy_percent(valid_, layout_.matrix(w))}};
  add_flag_scores(x, replaced_, wrong_, result);
  return result;
}

double WeightedSoftmax::smoothness_bound() const {
  return 0.5 * largest_gram_eigenvalue(train_.features) / static_cast<double>(train_.size()) +
         2 * regularization_;
}

std::optional<LossConstants> WeightedSoftmax::loss_constants(const Tensor& x) const {
  return weighted_softmax_constants(train_.features, valid_.features, x, regularization_);
}

std::optional<EvaluationErrors> WeightedSoftmax::evaluation_errors(const Tensor& w, const Tensor& x) const {
  return weighted_softmax_errors(train_.features, valid_.features, layout_, w, x, regularization_);
}

}  // namespace bilevel
