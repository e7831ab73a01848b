#include "bilevel/tables/held_out_loss.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "bilevel/tables/ridge_fit.h"
#include "bilevel/tables/softmax_fit.h"

namespace bilevel {
namespace {

constexpr double search_tolerance = 1e-4, refit_tolerance = 1e-6, hessian_tolerance = 1e-2;

class HeldOutCrossEntropy final : public HeldOutLoss {
 public:
  explicit HeldOutCrossEntropy(const HeldOutRows& rows)
      : HeldOutLoss(rows), cross_(rows.scaled, rows.fold, rows.folds, rows.targets.size(1)) {}

  double operator()(const Tensor& logarithms) override {
    scores_ = cross_.held_out_scores({rows_.targets, TargetKind::soft_labels}, logarithms, search_tolerance);
    return -(scores_.log_softmax(1) * rows_.targets * held_).sum().item<double>() / count_;
  }
  Tensor gradient() override {
    return cross_.derivative((scores_.softmax(1) - rows_.targets) * held_ / count_, hessian_tolerance);
  }
  void start_from(const HeldOutLoss& other) override {
    cross_.start_from(dynamic_cast<const HeldOutCrossEntropy&>(other).cross_.weights());
  }
  Tensor losses() const override {
    const Tensor index = held_.squeeze(1).nonzero().squeeze(1);
    return -(scores_.log_softmax(1) * rows_.targets).sum(1).index_select(0, index);
  }
  Tensor differences() const override {
    const Tensor index = held_.squeeze(1).nonzero().squeeze(1);
    return (scores_.softmax(1) - rows_.targets).index_select(0, index);
  }
  double score() const override {
    const Tensor right = scores_.argmax(1).eq(rows_.labels).to(at::kDouble) * held_.squeeze(1);
    return 100 * right.sum().item<double>() / count_;
  }
  Tensor refit(const Tensor& logarithms, FitCounts& counts) const override {
    const Tensor index = rows_.fitted();
    const SoftmaxFit fit =
        fit_softmax(rows_.scaled.index_select(0, index), {rows_.targets.index_select(0, index)},
                    penalties(logarithms, index.numel()), cross_.mean_weights(), refit_tolerance);
    ++counts.fits;
    counts.unconverged += fit.converged ? 0 : 1;
    counts.gradients += fit.gradients;
    return fit.weights;
  }
  Tensor losses_of(const HeldOutRows& rows, const Tensor& weights) const override {
    return -(rows.scaled.mm(weights).log_softmax(1) * rows.targets).sum(1);
  }
  const FitCounts& counts() const override { return cross_.counts(); }
  int64_t most_outer_gradients() const override { return 8; }

 private:
  CrossFit cross_;
  Tensor scores_;
};

class HeldOutSquares final : public HeldOutLoss {
 public:
  explicit HeldOutSquares(const HeldOutRows& rows)
      : HeldOutLoss(rows), cross_(rows.scaled, rows.targets, rows.fold, rows.folds) {}

  double operator()(const Tensor& logarithms) override {
    difference_ = (cross_.held_out_scores(logarithms) - rows_.targets) * held_;
    return 0.5 * std::log(std::max(sum_of_squares() / count_, std::numeric_limits<double>::min()));
  }
  Tensor gradient() override {
    return cross_.derivative(difference_ / std::max(sum_of_squares(), std::numeric_limits<double>::min()));
  }
  void start_from(const HeldOutLoss& /*other*/) override {}  // closed forms start nowhere
  Tensor losses() const override { return differences().square().squeeze(1); }
  Tensor differences() const override {
    return difference_.index_select(0, held_.squeeze(1).nonzero().squeeze(1));
  }
  double score() const override {
    const Tensor index = held_.squeeze(1).nonzero().squeeze(1);
    return determination(losses(), rows_.targets.index_select(0, index));
  }
  Tensor refit(const Tensor& logarithms, FitCounts& counts) const override {
    const Tensor index = rows_.fitted();
    RidgeSystem system(rows_.scaled.index_select(0, index), rows_.targets.index_select(0, index));
    system.set_penalty(logarithms.exp());
    ++counts.fits;
    return system.weights();
  }
  Tensor losses_of(const HeldOutRows& rows, const Tensor& weights) const override {
    return (rows.scaled.mm(weights) - rows.targets).square().squeeze(1);
  }
  const FitCounts& counts() const override { return cross_.counts(); }
  int64_t most_outer_gradients() const override { return 40; }  // closed forms are cheap

 private:
  double sum_of_squares() const { return difference_.square().sum().item<double>(); }
  RidgeCrossFit cross_;
  Tensor difference_;
};

}  // namespace

double determination(const Tensor& squares, const Tensor& targets) {
  return 1 - squares.mean().item<double>() / (targets - targets.mean()).square().mean().item<double>();
}

HeldOutRows HeldOutRows::subset(const Tensor& index) const {
  return {.scaled = scaled.index_select(0, index),
          .labels = labels.index_select(0, index),
          .targets = targets.index_select(0, index),
          .fold = fold.index_select(0, index),
          .folds = folds,
          .loss = loss};
}

Tensor HeldOutRows::fitted() const {
  return (folds == 1 ? fold.lt(0) : at::ones_like(fold, at::kBool)).nonzero().squeeze(1);
}

Tensor HeldOutRows::held_out_targets() const {
  return targets.index_select(0, fold.ge(0).nonzero().squeeze(1));
}

bool HeldOutRows::leaves_a_fold_empty() const {
  for (int64_t k = 0; k < folds; ++k) {
    const Tensor held = fold.eq(k);
    if (!held.any().item<bool>() || held.all().item<bool>()) return true;
  }
  return false;
}

HeldOutLoss::HeldOutLoss(const HeldOutRows& rows)
    : rows_(rows), held_(rows.fold.ge(0).to(at::kDouble).unsqueeze(1)), count_(held_.sum().item<double>()) {}

std::unique_ptr<HeldOutLoss> HeldOutLoss::of(const HeldOutRows& rows) {
  if (rows.loss == TableLoss::squared) return std::make_unique<HeldOutSquares>(rows);
  return std::make_unique<HeldOutCrossEntropy>(rows);
}

}  // namespace bilevel
