#include <memory>
#include <utility>

#include "bilevel/nas/tape/taped_supernet.h"

namespace bilevel::nas {
namespace {

class TapedEngine : public SupernetEngine {
 public:
  TapedEngine(const SupernetProblem& base, TapedSupernet taped) : base_(base), taped_(std::move(taped)) {}

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return base_.inner_loss(w, x, batch);
  }
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return base_.outer_loss(w, x, batch);
  }
  Tensor initial_inner(uint64_t seed) const override { return base_.initial_inner(seed); }
  Tensor initial_outer(uint64_t seed) const override { return base_.initial_outer(seed); }
  int64_t inner_samples() const override { return base_.inner_samples(); }
  int64_t outer_samples() const override { return base_.outer_samples(); }
  const Layout* inner_layout() const override { return base_.inner_layout(); }
  bool inner_loss_uses_outer() const override { return base_.inner_loss_uses_outer(); }
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return base_.inner_parts(w, x, batch);
  }

  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return inner_gradient_at(w, base_.mixture(x.detach(), batch.seed), batch);
  }
  Tensor inner_gradient_at(const Tensor& w, const Tensor& mixture, const Batch& batch) const override {
    const OwnImages own = base_.own_images(base_.train(), batch);
    return taped_.gradient(w, mixture, own.images, own.share);
  }
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    const OwnImages own = base_.own_images(base_.train(), batch);
    return taped_.gradient_in_alpha(w, base_.mixture_point(x, batch.seed), own.images, own.share);
  }
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    const OwnImages own = base_.own_images(base_.valid(), batch);
    return taped_.gradients(w, base_.mixture_point(x, batch.seed), own.images, own.share);
  }
  OuterGradients outer_gradient_in_outer(const Tensor& w, const Tensor& x,
                                         const Batch& batch) const override {
    const OwnImages own = base_.own_images(base_.valid(), batch);
    return taped_.gradients(w, base_.mixture_point(x, batch.seed), own.images, own.share,
                            {.w = false, .mixture = true});
  }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override {
    const OwnImages own = base_.own_images(base_.train(), batch);
    return taped_.linearize(w, base_.mixture_point(x, batch.seed), own.images, own.share);
  }
  MatrixProduct outer_curvature(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    if (base_.ranks().group) return nullptr;
    return taped_.curvature_in_alpha(w, base_.mixture_point(x, batch.seed), base_.valid().prepare(batch));
  }

 private:
  using OwnImages = SupernetProblem::OwnImages;

  const SupernetProblem& base_;
  TapedSupernet taped_;
};

}  // namespace

std::unique_ptr<SupernetEngine> tape_supernet(const SupernetProblem& base) {
  if (!base.initial_outer(0).is_cpu()) return nullptr;
  std::optional<TapedSupernet> taped = TapedSupernet::make(base);
  if (!taped) return nullptr;
  return std::make_unique<TapedEngine>(base, std::move(*taped));
}

}  // namespace bilevel::nas
