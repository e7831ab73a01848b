#include "bilevel/nas/guards/smoothing.h"

#include <ATen/ATen.h>

#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

Tensor smoothed_mixture(const SearchSpace& space, const Tensor& mixture, double bound, uint64_t seed) {
  Random random(named_seed(seed, "smoothing"));
  const Tensor noise =
      ((2 * random.uniform({mixture.numel()}, at::kDouble) - 1) * bound).to(mixture.options());
  std::vector<Tensor> parts;
  for (const AlphaBlock& block : space.alpha) {
    const Tensor noisy = space.block(mixture, block.name) + space.block(noise, block.name);
    const Tensor inside = noisy.clamp(0, 1);
    // Without a question to the device: what is largest counts where all is zero.
    const Tensor largest = at::zeros_like(noisy).scatter_(1, noisy.argmax(1, /*keepdim=*/true), 1.0);
    const Tensor kept = at::where(inside.sum(1, /*keepdim=*/true) > 0, inside, largest);
    parts.push_back((kept / kept.sum(1, /*keepdim=*/true)).flatten());
  }
  return at::cat(parts);
}

double Smoothing::set_epoch(const SearchTime& now) {
  const double along = static_cast<double>(now.epoch) / static_cast<double>(now.epochs);
  bound_ = strength_ * (0.1 + 0.9 * along);
  return bound_;
}

Tensor Smoothing::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  if (bound_ == 0) return base().inner_gradient(w, x, batch);
  const Tensor mixture = supernet_.mixture(x.detach(), batch.seed);
  return engine_.inner_gradient_at(
      w, smoothed_mixture(supernet_.supernet().space(), mixture, bound_, batch.seed), batch);
}

}  // namespace bilevel::nas
