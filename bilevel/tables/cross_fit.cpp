#include "bilevel/tables/cross_fit.h"

#include <ATen/ATen.h>

namespace bilevel {

CrossFit::CrossFit(const Tensor& rows, const Tensor& fold, int64_t folds, int64_t classes)
    : rows_(rows), classes_(classes) {
  for (int64_t k = 0; k < folds; ++k) {
    Part part;
    part.fitted_index = fold.ne(k).nonzero().squeeze(1);
    part.held_index = fold.eq(k).nonzero().squeeze(1);
    part.fitted = rows.index_select(0, part.fitted_index);
    part.held = rows.index_select(0, part.held_index);
    parts_.push_back(part);
    weights_.push_back(at::zeros({rows.size(1), classes}, at::kDouble));
  }
}

Tensor CrossFit::held_out_scores(const SoftmaxTargets& targets, const Tensor& logarithms, double tolerance) {
  Tensor scores = at::zeros({rows_.size(0), classes_}, at::kDouble);
  logarithms_ = logarithms;
  for (size_t k = 0; k < parts_.size(); ++k) {
    const Part& part = parts_[k];
    const SoftmaxTargets here{targets.values.index_select(0, part.fitted_index), targets.kind};
    const SoftmaxFit fit =
        fit_softmax(part.fitted, here, penalties(logarithms, part.fitted.size(0)), weights_[k], tolerance);
    weights_[k] = fit.weights;
    ++counts_.fits;
    counts_.unconverged += fit.converged ? 0 : 1;
    counts_.gradients += fit.gradients;
    scores.index_put_({part.held_index}, part.held.mm(fit.weights));
  }
  return scores;
}

// By the implicit function theorem: the fit's gradient stays zero, so dW = -H^-1 (dpenalty W), and the
// penalty of a column grows as fast as itself with its logarithm.
Tensor CrossFit::derivative(const Tensor& by_scores, double tolerance) {
  Tensor total = at::zeros_like(logarithms_);
  for (size_t k = 0; k < parts_.size(); ++k) {
    const Part& part = parts_[k];
    const Tensor by_weights = part.held.t().mm(by_scores.index_select(0, part.held_index));
    const Tensor penalty = penalties(logarithms_, part.fitted.size(0));
    const HessianSolve solve =
        solve_softmax_hessian(part.fitted, weights_[k], penalty, by_weights, tolerance);
    counts_.hessian_products += solve.products;
    counts_.unsolved += solve.converged ? 0 : 1;
    const Tensor products = weights_[k] * solve.solution;
    total -= ((total.dim() == 1 ? products.sum(1) : products) * penalty).narrow(0, 0, total.size(0));
  }
  return total;
}

Tensor CrossFit::mean_weights() const { return at::stack(weights_).mean(0); }

Tensor alike(double logarithm, int64_t columns) { return at::full({columns - 1}, logarithm, at::kDouble); }

}  // namespace bilevel
