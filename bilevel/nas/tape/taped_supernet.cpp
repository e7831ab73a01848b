#include "bilevel/nas/tape/taped_supernet.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

namespace bilevel::nas {
namespace {

class TapedLinearization : public Linearization {
 public:
  TapedLinearization(std::shared_ptr<const TapeOnDevice> tape, const SearchSpace& space, const Tensor& w,
                     MixturePoint mixture, const LabelledImages& images, const BatchShare& share)
      : tape_(std::move(tape)),
        space_(space),
        mixture_(std::move(mixture)),
        point_(run_tape(*tape_, w, mixture_.value, images, share)) {
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
  Tensor gauss_newton(const Tensor& v) override { return point_->gauss_newton(v); }

 private:
  Tensor in_alpha(const Tensor& u) const {
    const at::AutoGradMode no_graph(false);
    return mixture_.derivative(space_, u);
  }

  std::shared_ptr<const TapeOnDevice> tape_;
  const SearchSpace& space_;
  MixturePoint mixture_;
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

Tensor TapedSupernet::gradient(const Tensor& w, const Tensor& mixture, const LabelledImages& images,
                               const BatchShare& share) const {
  return run_tape(*tape_, w, mixture.detach(), images, share)->gradients({.w = true, .mixture = false}).w;
}

Tensor TapedSupernet::gradient_in_alpha(const Tensor& w, const MixturePoint& mixture,
                                        const LabelledImages& images, const BatchShare& share) const {
  const TapeGradients g =
      run_tape(*tape_, w, mixture.value, images, share)->gradients({.w = false, .mixture = true});
  return mixture.derivative(base_->supernet().space(), g.mixture);
}

OuterGradients TapedSupernet::gradients(const Tensor& w, const MixturePoint& mixture,
                                        const LabelledImages& images, const BatchShare& share,
                                        const Wanted& wanted) const {
  const std::unique_ptr<TapePoint> point = run_tape(*tape_, w, mixture.value, images, share);
  const TapeGradients g = point->gradients(wanted);
  OuterGradients result;
  result.loss = point->loss();
  result.w = g.w;
  result.x = mixture.derivative(base_->supernet().space(), g.mixture);
  return result;
}

std::unique_ptr<Linearization> TapedSupernet::linearize(const Tensor& w, const MixturePoint& mixture,
                                                        const LabelledImages& images,
                                                        const BatchShare& share) const {
  return std::make_unique<TapedLinearization>(tape_, base_->supernet().space(), w, mixture, images, share);
}

MatrixProduct TapedSupernet::curvature_in_alpha(const Tensor& w, const MixturePoint& mixture,
                                                const LabelledImages& images) const {
  const std::shared_ptr<TapePoint> here = point(w, mixture.value, images);
  const Tensor gradient = here->gradients({.w = false, .mixture = true}).mixture;
  return mixture.curvature(base_->supernet().space(), gradient, [here](const Tensor& v) {
    return here->products({}, v, {.w = false, .mixture = true}).mixture;
  });
}

}  // namespace bilevel::nas
