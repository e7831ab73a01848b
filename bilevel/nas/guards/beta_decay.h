#pragma once
// Beta decay (Ye et al., beta-DARTS, CVPR 2022): f + lambda * mean over the rows of alpha of
// logsumexp(row). Its gradient, lambda / rows * softmax(row), pulls down what is already large, so that no
// operation runs away from the others while the weights are still learning. lambda rises along a line from 0
// in the first epoch that moves alpha, as in the authors' code: 0.5 an epoch there. It must begin at 0: where
// the penalty is much larger than the hypergradient, Adam makes all steps of a row alike, and alpha's
// differences hardly move.

#include "bilevel/nas/guards/guard.h"

namespace bilevel::nas {

class BetaDecay : public Guard {
 public:
  // `base` must outlive this object. `strength`: lambda after the last epoch.
  BetaDecay(const Problem& base, const SearchSpace& space, double strength)
      : Guard(base), space_(space), strength_(strength) {}

  double set_epoch(const SearchTime& now) override;
  Penalty penalty(const Tensor& x) const override;  // without a graph of derivatives
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;

 private:
  OuterGradients with_penalty(OuterGradients of_base, const Tensor& x) const;
  Tensor mean_logsumexp(const Tensor& x) const;

  SearchSpace space_;
  double strength_;
  double lambda_ = 0;
};

}  // namespace bilevel::nas
