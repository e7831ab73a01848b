#include "bilevel/nas/guards/beta_decay.h"

#include <ATen/ATen.h>

namespace bilevel::nas {
namespace {

int64_t rows_of(const SearchSpace& space) {
  int64_t rows = 0;
  for (const AlphaBlock& block : space.alpha) rows += block.rows;
  return rows;
}

}  // namespace

double BetaDecay::set_epoch(const SearchTime& now) {
  lambda_ = now.epoch <= now.resting ? 0
                                     : strength_ * static_cast<double>(now.epoch - now.resting) /
                                           static_cast<double>(now.epochs - now.resting);
  return lambda_;
}

Tensor BetaDecay::mean_logsumexp(const Tensor& x) const {
  Tensor sum = at::zeros({}, x.options());
  for (const AlphaBlock& block : space_.alpha) {
    sum = sum + at::logsumexp(space_.block(x, block.name), 1).sum();
  }
  return sum / static_cast<double>(rows_of(space_));
}

Penalty BetaDecay::penalty(const Tensor& x) const {
  if (lambda_ == 0) return {};  // alpha's steps are those of a bare search, to the bit
  const Tensor alpha = x.detach();
  return {.value = lambda_ * mean_logsumexp(alpha),
          .gradient = lambda_ / static_cast<double>(rows_of(space_)) * mixture_weights(space_, alpha)};
}

Tensor BetaDecay::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Tensor loss = base().outer_loss(w, x, batch);
  return lambda_ == 0 ? loss : loss + lambda_ * mean_logsumexp(x);
}

OuterGradients BetaDecay::with_penalty(OuterGradients of_base, const Tensor& x) const {
  const Penalty added = penalty(x);
  if (!added.gradient.defined()) return of_base;
  of_base.loss = of_base.loss + added.value;
  of_base.x = of_base.x + added.gradient;
  return of_base;
}

OuterGradients BetaDecay::outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return with_penalty(base().outer_gradients(w, x, batch), x);
}
OuterGradients BetaDecay::outer_gradient_in_outer(const Tensor& w, const Tensor& x,
                                                  const Batch& batch) const {
  return with_penalty(base().outer_gradient_in_outer(w, x, batch), x);
}

}  // namespace bilevel::nas
