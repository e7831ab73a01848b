#include "bilevel/nas/tape/taped_supernet.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

namespace bilevel::nas {
namespace {

// The softmax's Jacobian at its value, times u: symmetric, so forwards and backwards alike.
Tensor softmax_jacobian(const SearchSpace& space, const Tensor& mixture, const Tensor& u) {
  std::vector<Tensor> parts;
  for (const AlphaBlock& block : space.alpha) {
    const Tensor m = space.block(mixture, block.name), v = space.block(u, block.name);
    parts.push_back((m * (v - (m * v).sum(1, /*keepdim=*/true))).flatten());
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

class TapedLinearization : public Linearization {
 public:
  TapedLinearization(std::shared_ptr<const TapeOnDevice> tape, const SupernetProblem& base, const Tensor& w,
                     const Tensor& alpha, const LabelledImages& images)
      : tape_(std::move(tape)),
        space_(base.supernet().space()),
        softmax_(mixture_weights(space_, alpha.detach())),
        point_(run_tape(*tape_, w, base.shifted(softmax_), images)) {
    point_->gradients({.w = false, .mixture = false});
  }

  // Computed when it is asked for, and every time, so that a graph can capture it.
  Tensor gradient() override { return point_->gradient_in_weights(); }
  Tensor hessian(const Tensor& v) override {
    return point_->products(v, {}, {.w = true, .mixture = false}).w;
  }
  Tensor cross(const Tensor& v) override {
    return in_alpha(point_->products(v, {}, {.w = false, .mixture = true}).mixture);
  }
  Tensor cross_transposed(const Tensor& u) override {
    return point_->products({}, in_alpha(u), {.w = true, .mixture = false}).w;
  }
  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) override {
    const TapeGradients both = point_->products(v, {}, {});
    return {both.w, in_alpha(both.mixture)};
  }

 private:
  Tensor in_alpha(const Tensor& u) const {
    const at::AutoGradMode no_graph(false);
    return softmax_jacobian(space_, softmax_, u);
  }

  std::shared_ptr<const TapeOnDevice> tape_;
  const SearchSpace& space_;
  Tensor softmax_;
  std::unique_ptr<TapePoint> point_;
};

}  // namespace

std::optional<TapedSupernet> TapedSupernet::make(const SupernetProblem& base) {
  const at::TensorOptions tensors = base.initial_outer(0).options();
  if (!can_run_tape(tensors)) return std::nullopt;
  std::optional<Tape> tape = record(base.supernet());
  if (!tape) return std::nullopt;
  return TapedSupernet(base, std::make_shared<const TapeOnDevice>(std::move(*tape), tensors));
}

Tensor TapedSupernet::gradient(const Tensor& w, const Tensor& alpha, const LabelledImages& images) const {
  return gradient_at(w, base_->shifted(mixture_weights(base_->supernet().space(), alpha.detach())), images);
}

Tensor TapedSupernet::gradient_at(const Tensor& w, const Tensor& mixture,
                                  const LabelledImages& images) const {
  return run_tape(*tape_, w, mixture.detach(), images)->gradients({.w = true, .mixture = false}).w;
}

Tensor TapedSupernet::gradient_in_alpha(const Tensor& w, const Tensor& alpha,
                                        const LabelledImages& images) const {
  const SearchSpace& space = base_->supernet().space();
  const Tensor softmax = mixture_weights(space, alpha.detach());
  const TapeGradients g =
      run_tape(*tape_, w, base_->shifted(softmax), images)->gradients({.w = false, .mixture = true});
  return softmax_jacobian(space, softmax, g.mixture);
}

OuterGradients TapedSupernet::gradients(const Tensor& w, const Tensor& alpha,
                                        const LabelledImages& images) const {
  const SearchSpace& space = base_->supernet().space();
  const Tensor softmax = mixture_weights(space, alpha.detach());
  const std::unique_ptr<TapePoint> point = run_tape(*tape_, w, base_->shifted(softmax), images);
  const TapeGradients g = point->gradients({});
  OuterGradients result;
  result.loss = point->loss();
  result.w = g.w;
  result.x = softmax_jacobian(space, softmax, g.mixture);
  return result;
}

std::unique_ptr<Linearization> TapedSupernet::linearize(const Tensor& w, const Tensor& alpha,
                                                        const LabelledImages& images) const {
  return std::make_unique<TapedLinearization>(tape_, *base_, w, alpha, images);
}

}  // namespace bilevel::nas
