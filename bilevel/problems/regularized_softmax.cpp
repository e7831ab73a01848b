#include "bilevel/problems/regularized_softmax.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/linear_scores.h"
#include "bilevel/problems/softmax_constants.h"
#include "bilevel/problems/softmax_rounding.h"

namespace bilevel {
namespace {

constexpr int64_t features_at_once = 4096;  // for a thread to be worth it

template <class T>
void dot_rows_into(const T* a, const T* b, const WeightLayout& layout, T* to) {
  at::parallel_for(0, layout.features, features_at_once, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t k = j * layout.classes; k < (j + 1) * layout.classes; ++k) sum += a[k] * b[k];
      to[j] = sum;
    }
  });
}

// sum_k A_jk B_jk for every feature j, without a temporary of w's size.
Tensor dot_rows(const Tensor& a, const Tensor& b, const WeightLayout& layout) {
  if (b.dim() != 1 || b.numel() != layout.size() || b.scalar_type() != a.scalar_type()) {
    throw std::invalid_argument(fmt::format(
        "the vector of a product must have {} x {} numbers of {}, but has {} of {}", layout.features,
        layout.classes, c10::toString(a.scalar_type()), b.numel(), c10::toString(b.scalar_type())));
  }
  Tensor result = at::empty({layout.features}, a.options());
  const Tensor left = a.contiguous(), right = b.contiguous();
  if (a.scalar_type() == at::kFloat) {
    dot_rows_into(left.data_ptr<float>(), right.data_ptr<float>(), layout, result.data_ptr<float>());
  } else {
    dot_rows_into(left.data_ptr<double>(), right.data_ptr<double>(), layout, result.data_ptr<double>());
  }
  return result;
}

class RegularizedLinearization : public Linearization {
 public:
  RegularizedLinearization(const SoftmaxTerms& terms, const WeightLayout& layout, const Tensor& w)
      : point_(make_softmax_point(terms, layout, w, true)),
        layout_(layout),
        w_(w.detach()),
        ridge_(terms.ridge) {}

  Tensor gradient() override { return point_->gradient(); }
  Tensor hessian(const Tensor& v) override { return point_->hessian(v); }
  Tensor gauss_newton(const Tensor& v) override { return point_->hessian(v); }  // the model is linear in w
  // x is in the ridge alone, whose derivative in x_j is itself: no example is read.
  Tensor cross(const Tensor& v) override { return dot_rows(w_, v, layout_).mul_(ridge_); }
  Tensor cross_transposed(const Tensor& u) override {
    if (u.dim() != 1 || u.numel() != layout_.features || u.scalar_type() != w_.scalar_type()) {
      throw std::invalid_argument(fmt::format(
          "the vector of a transposed cross product must have {} numbers of {}, but has {} of {}",
          layout_.features, c10::toString(w_.scalar_type()), u.numel(), c10::toString(u.scalar_type())));
    }
    return (layout_.matrix(w_) * (ridge_ * u).unsqueeze(1)).view({-1});
  }

 private:
  std::unique_ptr<SoftmaxPoint> point_;
  WeightLayout layout_;
  Tensor w_, ridge_;
};

}  // namespace

RegularizedSoftmax::RegularizedSoftmax(LabelledRows train, LabelledRows valid, int64_t classes)
    : train_(std::move(train)),
      valid_(std::move(valid)),
      layout_{.classes = classes, .features = train_.features.features(), .by_feature = true} {
  validate_sets(train_, valid_, classes);
}

Tensor RegularizedSoftmax::ridge(const Tensor& x) const {
  if (x.dim() != 1 || x.numel() != layout_.features || x.scalar_type() != train_.features.dtype()) {
    throw std::invalid_argument(fmt::format("x must have {} numbers of {}, one per feature, but has {} of {}",
                                            layout_.features, c10::toString(train_.features.dtype()),
                                            x.numel(), c10::toString(x.scalar_type())));
  }
  return x.detach().exp().mul_(2 / static_cast<double>(layout_.size()));
}

Tensor RegularizedSoftmax::exact_ridge(const Tensor& x) const {
  return x.detach().to(at::kDouble).exp() * (2 / static_cast<double>(layout_.size()));
}

SoftmaxTerms RegularizedSoftmax::terms(const Tensor& x, const Batch& batch) const {
  const Tensor labels = batch_rows(train_.labels, batch).contiguous();  // checks the index
  return {.data = train_.features,
          .index = batch.is_full() ? Tensor() : batch.index.contiguous(),
          .labels = labels,
          .weights = at::full({labels.numel()}, 1 / static_cast<double>(labels.numel()), x.options()),
          .ridge = ridge(x)};
}

Tensor RegularizedSoftmax::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return make_softmax_point(terms(x, batch), layout_, w, false)->gradient();
}

std::unique_ptr<Linearization> RegularizedSoftmax::linearize(const Tensor& w, const Tensor& x,
                                                             const Batch& batch) const {
  return std::make_unique<RegularizedLinearization>(terms(x, batch), layout_, w);
}

Tensor RegularizedSoftmax::inner_gradient_in_outer(const Tensor& w, const Tensor& x,
                                                   const Batch& batch) const {
  batch_rows(train_.labels, batch);  // grad_x g reads no example, but a bad index is still a mistake
  return dot_rows(w.detach(), w.detach(), layout_).mul_(ridge(x)).div_(2);
}

OuterGradients RegularizedSoftmax::outer_gradients(const Tensor& w, const Tensor& x,
                                                   const Batch& batch) const {
  return mean_outer_gradients(valid_, layout_, w, x, batch);
}

Tensor RegularizedSoftmax::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Tensor matrix = layout_.matrix(w);
  return mean_cross_entropy(train_, matrix, batch) +
         (x.exp() * (matrix * matrix).sum(1)).sum() / layout_.size();
}

Tensor RegularizedSoftmax::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  return mean_cross_entropy(valid_, layout_.matrix(w), batch);
}

Tensor RegularizedSoftmax::initial_inner(uint64_t /*seed*/) const {
  return at::zeros({layout_.size()}, train_.features.dtype());
}

Tensor RegularizedSoftmax::initial_outer(uint64_t /*seed*/) const {
  return at::zeros({layout_.features}, train_.features.dtype());
}

std::map<std::string, double> RegularizedSoftmax::metrics(const Tensor& w, const Tensor& /*x*/) const {
  return {{"train_accuracy", accuracy_percent(train_, layout_.matrix(w))},
          {"valid_accuracy", accuracy_percent(valid_, layout_.matrix(w))}};
}

double RegularizedSoftmax::smoothness_bound(const Tensor& x) const {
  return 0.5 * largest_gram_eigenvalue(train_.features) / static_cast<double>(train_.size()) +
         ridge(x).max().item<double>();
}

std::optional<LossConstants> RegularizedSoftmax::loss_constants(const Tensor& x) const {
  return ridge_softmax_constants(train_.features, valid_.features, exact_ridge(x));
}

std::optional<EvaluationErrors> RegularizedSoftmax::evaluation_errors(const Tensor& w,
                                                                      const Tensor& x) const {
  return ridge_softmax_errors(train_.features, valid_.features, layout_, w, exact_ridge(x));
}

}  // namespace bilevel
