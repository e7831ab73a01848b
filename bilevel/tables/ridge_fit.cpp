#include "bilevel/tables/ridge_fit.h"

#include <ATen/ATen.h>

namespace bilevel {

RidgeSystem::RidgeSystem(const Tensor& rows, const Tensor& targets)
    : mean_(rows.narrow(1, 0, rows.size(1) - 1).mean(0)), target_mean_(targets.mean().item<double>()) {
  rows_ = centred(rows);
  product_ = rows_.t().mm(targets - target_mean_);
  if (rows_.size(1) <= rows_.size(0)) gram_ = rows_.t().mm(rows_);
}

Tensor RidgeSystem::centred(const Tensor& rows) const { return rows.narrow(1, 0, mean_.numel()) - mean_; }

void RidgeSystem::set_penalty(const Tensor& penalty) {
  penalty_ = penalty.unsqueeze(1);
  if (by_columns()) {
    factor_ = at::linalg_cholesky(gram_ + at::diag(penalty));
    return;
  }
  const Tensor inner = rows_.mm(rows_.t() / penalty_);
  factor_ = at::linalg_cholesky(inner + at::eye(inner.size(0), inner.options()));
}

// Without the first form, by Woodbury: P^-1 b - P^-1 X' (I + X P^-1 X')^-1 X P^-1 b.
Tensor RidgeSystem::solve(const Tensor& b) const {
  if (by_columns()) return at::cholesky_solve(b, factor_);
  const Tensor scaled = b / penalty_;
  return scaled - rows_.t().mm(at::cholesky_solve(rows_.mm(scaled), factor_)) / penalty_;
}

Tensor RidgeSystem::weights() const {
  const Tensor slopes = solve(product_);
  return at::cat({slopes, target_mean_ - mean_.unsqueeze(0).mm(slopes)});
}

RidgeCrossFit::RidgeCrossFit(const Tensor& rows, const Tensor& targets, const Tensor& fold, int64_t folds)
    : rows_(rows.size(0)) {
  for (int64_t k = 0; k < folds; ++k) {
    const Tensor fitted = fold.ne(k).nonzero().squeeze(1), held = fold.eq(k).nonzero().squeeze(1);
    Part part{.system = RidgeSystem(rows.index_select(0, fitted), targets.index_select(0, fitted)),
              .held_index = held,
              .held = {},
              .held_with_ones = rows.index_select(0, held),
              .weights = {}};
    part.held = part.system.centred(part.held_with_ones);
    parts_.push_back(part);
  }
}

Tensor RidgeCrossFit::held_out_scores(const Tensor& logarithms) {
  Tensor scores = at::zeros({rows_, 1}, at::kDouble);
  penalty_ = logarithms.exp();
  for (Part& part : parts_) {
    part.system.set_penalty(penalty_);
    part.weights = part.system.weights();
    ++counts_.fits;
    scores.index_put_({part.held_index}, part.held_with_ones.mm(part.weights));
  }
  return scores;
}

// As for softmax regression: dw = -H^-1 (dpenalty w).
Tensor RidgeCrossFit::derivative(const Tensor& by_scores) {
  Tensor total = at::zeros_like(penalty_);
  for (const Part& part : parts_) {
    const Tensor by_weights = part.held.t().mm(by_scores.index_select(0, part.held_index));
    const Tensor slopes = part.weights.narrow(0, 0, penalty_.numel());
    total -= (slopes * part.system.solve(by_weights)).squeeze(1) * penalty_;
  }
  return total;
}

}  // namespace bilevel
