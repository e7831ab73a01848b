#include "bilevel/nas/captured_supernet.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/core/linearization.h"
#include "bilevel/nas/tape/taped_supernet.h"

namespace bilevel::nas {
namespace {

// The supernet's loss with the mixture in the place of x, on images that a graph reads.
class AtMixture : public Problem {
 public:
  AtMixture(const SupernetProblem& base, LabelledImages images) : base_(base), images_(std::move(images)) {}
  Tensor inner_loss(const Tensor& w, const Tensor& mixture, const Batch&) const override {
    return base_.loss(w, mixture, images_);
  }
  Tensor outer_loss(const Tensor& w, const Tensor& mixture, const Batch& batch) const override {
    return inner_loss(w, mixture, batch);
  }
  Tensor initial_inner(uint64_t seed) const override { return base_.initial_inner(seed); }
  Tensor initial_outer(uint64_t seed) const override { return base_.initial_outer(seed); }

 private:
  const SupernetProblem& base_;
  LabelledImages images_;
};

// What is captured: derivatives as functions of w, the mixture, images and labels, by the tape where the
// supernet has one, else by automatic differentiation.
class Derivatives {
 public:
  Derivatives(const SupernetProblem& base, bool tape)
      : base_(base), taped_(tape ? TapedSupernet::make(base) : std::nullopt) {}

  bool taped() const { return taped_.has_value(); }

  std::vector<Tensor> in_w(const std::vector<Tensor>& in) const {
    if (taped_) return {point(in)->gradients({.w = true, .mixture = false}).w};
    return {at_mixture(in).inner_gradient(in[0], in[1], {})};
  }
  std::vector<Tensor> in_mixture(const std::vector<Tensor>& in) const {
    if (taped_) return {point(in)->gradients({.w = false, .mixture = true}).mixture};
    return {at_mixture(in).inner_gradient_in_outer(in[0], in[1], {})};
  }
  std::vector<Tensor> in_both(const std::vector<Tensor>& in) const {
    if (taped_) {
      const auto here = point(in);
      const TapeGradients g = here->gradients({});
      return {here->loss(), g.w, g.mixture};
    }
    const OuterGradients g = at_mixture(in).outer_gradients(in[0], in[1], {});
    return {g.loss.detach(), g.w, g.x};
  }
  std::vector<Tensor> loss_and_in_mixture(const std::vector<Tensor>& in) const {
    if (taped_) {
      const auto here = point(in);
      return {here->loss(), here->gradients({.w = false, .mixture = true}).mixture};
    }
    const OuterGradients g = at_mixture(in).outer_gradient_in_outer(in[0], in[1], {});
    return {g.loss.detach(), g.x};
  }
  std::unique_ptr<TapePoint> point(const std::vector<Tensor>& in) const {
    return taped_->point(in[0], in[1], {in[2], in[3]});
  }
  AtMixture at_mixture(const std::vector<Tensor>& in) const { return {base_, {in[2], in[3]}}; }

 private:
  const SupernetProblem& base_;
  std::optional<TapedSupernet> taped_;
};

// The forward pass and the first backward pass in one graph, products with their results in others: a second
// product at the same point costs only itself.
class Products {
 public:
  Products(const Derivatives& derivatives, const at::TensorOptions& tensors)
      : derivatives_(derivatives),
        point_([this](const Inputs& in) { return keep(in); }, tensors, nullptr, [this] { forget(); }),
        gradient_([this](const Inputs&) { return Inputs{kept_gradient()}; }, tensors, &point_),
        hessian_([this](const Inputs& in) { return Inputs{times_hessian(in[0])}; }, tensors, &point_),
        cross_([this](const Inputs& in) { return Inputs{times_cross(in[0])}; }, tensors, &point_),
        cross_transposed_(
            [this](const Inputs& in) {
              return Inputs{taped_->products({}, in[0], {.w = true, .mixture = false}).w};
            },
            tensors, &point_),
        both_([this](const Inputs& in) { return times_both(in[0]); }, tensors, &point_),
        gauss_newton_([this](const Inputs& in) { return Inputs{taped_->gauss_newton(in[0])}; }, tensors,
                      &point_) {}

  void at(const std::vector<Tensor>& inputs) { point_(inputs); }
  Tensor gradient() { return gradient_({})[0]; }
  Tensor hessian(const Tensor& v) { return hessian_({v})[0]; }
  Tensor cross(const Tensor& v) { return cross_({v})[0]; }  // in the mixture
  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) {
    std::vector<Tensor> both = both_({v});
    return {std::move(both[0]), std::move(both[1])};
  }
  // By a tape only.
  Tensor cross_transposed(const Tensor& u) { return cross_transposed_({u})[0]; }  // u in the mixture
  Tensor gauss_newton(const Tensor& v) { return gauss_newton_({v})[0]; }

 private:
  using Inputs = std::vector<Tensor>;

  Inputs keep(const Inputs& in) {
    forget();  // what the last call kept is free again before the next takes memory
    if (derivatives_.taped()) {
      taped_ = derivatives_.point(in);
      taped_->gradients({.w = false, .mixture = false});
    } else {
      problem_.emplace(derivatives_.at_mixture(in));
      plain_ = problem_->linearize(in[0], in[1], {});
      plain_->gradient();  // the first backward pass belongs to the point
    }
    return {};
  }
  void forget() {
    taped_.reset();
    plain_.reset();
  }
  Tensor kept_gradient() { return taped_ ? taped_->gradient_in_weights() : plain_->gradient().clone(); }
  Tensor times_hessian(const Tensor& v) {
    return taped_ ? taped_->products(v, {}, {.w = true, .mixture = false}).w : plain_->hessian(v);
  }
  Tensor times_cross(const Tensor& v) {
    return taped_ ? taped_->products(v, {}, {.w = false, .mixture = true}).mixture : plain_->cross(v);
  }
  Inputs times_both(const Tensor& v) {
    if (taped_) {
      const TapeGradients both = taped_->products(v, {}, {});
      return {both.w, both.mixture};
    }
    const auto [hessian, cross] = plain_->hessian_and_cross(v);
    return {hessian, cross};
  }

  const Derivatives& derivatives_;
  std::optional<AtMixture> problem_;
  std::unique_ptr<TapePoint> taped_;
  std::unique_ptr<Linearization> plain_;
  Captured point_, gradient_, hessian_, cross_, cross_transposed_, both_, gauss_newton_;
};

// The loss's curvature in the mixture, by a tape.
class Curvature {
 public:
  Curvature(const Derivatives& derivatives, const at::TensorOptions& tensors)
      : point_(
            [this, &derivatives](const std::vector<Tensor>& in) {
              kept_.reset();
              kept_ = derivatives.point(in);
              return std::vector<Tensor>{kept_->gradients({.w = false, .mixture = true}).mixture};
            },
            tensors, nullptr, [this] { kept_.reset(); }),
        product_(
            [this](const std::vector<Tensor>& in) {
              return std::vector<Tensor>{kept_->products({}, in[0], {.w = false, .mixture = true}).mixture};
            },
            tensors, &point_) {}

  Tensor at(const std::vector<Tensor>& inputs) { return point_(inputs)[0]; }  // the gradient
  Tensor times(const Tensor& v) { return product_({v})[0]; }

 private:
  std::unique_ptr<TapePoint> kept_;
  Captured point_, product_;
};

class CapturedSupernet : public SupernetEngine {
 public:
  CapturedSupernet(const SupernetProblem& base, int64_t batch, bool tape)
      : base_(base),
        batch_(batch),
        derivatives_(base, tape),
        inner_w_([this](const std::vector<Tensor>& in) { return derivatives_.in_w(in); }, tensors()),
        inner_mixture_([this](const std::vector<Tensor>& in) { return derivatives_.in_mixture(in); },
                       tensors()),
        outer_([this](const std::vector<Tensor>& in) { return derivatives_.in_both(in); }, tensors()),
        outer_mixture_([this](const std::vector<Tensor>& in) { return derivatives_.loss_and_in_mixture(in); },
                       tensors()),
        products_(derivatives_, tensors()),
        curvature_(derivatives_, tensors()) {}

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
    if (!fits(base_.train(), batch)) return base_.inner_gradient(w, x, batch);
    return inner_gradient_at(w, base_.mixture(x.detach(), batch.seed), batch);
  }
  Tensor inner_gradient_at(const Tensor& w, const Tensor& mixture, const Batch& batch) const override {
    if (!fits(base_.train(), batch)) return base_.inner_gradient_at(w, mixture, batch);
    return inner_w_(inputs(w, mixture, base_.train(), batch))[0];
  }
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    if (!fits(base_.train(), batch)) return base_.inner_gradient_in_outer(w, x, batch);
    const MixturePoint mixture = point(x, batch);
    return in_alpha(mixture, inner_mixture_(inputs(w, mixture.value, base_.train(), batch))[0]);
  }
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    if (!fits(base_.valid(), batch)) return base_.outer_gradients(w, x, batch);
    const MixturePoint mixture = point(x, batch);
    std::vector<Tensor> all = outer_(inputs(w, mixture.value, base_.valid(), batch));
    OuterGradients gradients;
    gradients.loss = all[0];
    gradients.w = all[1];
    gradients.x = in_alpha(mixture, all[2]);
    return gradients;
  }
  OuterGradients outer_gradient_in_outer(const Tensor& w, const Tensor& x,
                                         const Batch& batch) const override {
    if (!fits(base_.valid(), batch)) return base_.outer_gradient_in_outer(w, x, batch);
    const MixturePoint mixture = point(x, batch);
    std::vector<Tensor> all = outer_mixture_(inputs(w, mixture.value, base_.valid(), batch));
    return {.loss = all[0], .w = {}, .x = in_alpha(mixture, all[1])};
  }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  MatrixProduct outer_curvature(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    if (!fits(base_.valid(), batch) || !derivatives_.taped()) return nullptr;
    const MixturePoint mixture = point(x, batch);
    const Tensor gradient = curvature_.at(inputs(w, mixture.value, base_.valid(), batch));
    const int64_t made = ++curvatures_;
    return mixture.curvature(base_.supernet().space(), gradient, [this, made](const Tensor& v) {
      if (made != curvatures_) {
        throw std::logic_error("a curvature was asked for a product after the next one was made");
      }
      return curvature_.times(v);
    });
  }

 private:
  friend class CapturedLinearization;
  at::TensorOptions tensors() const { return base_.initial_outer(0).options(); }
  bool fits(const ImageSource& source, const Batch& batch) const {
    return batch.size(source.samples) == batch_;
  }
  MixturePoint point(const Tensor& x, const Batch& batch) const {
    const at::AutoGradMode no_graph(false);
    return base_.mixture_point(x, batch.seed);
  }
  Tensor in_alpha(const MixturePoint& mixture, const Tensor& u) const {
    const at::AutoGradMode no_graph(false);
    return mixture.derivative(base_.supernet().space(), u);
  }
  static std::vector<Tensor> inputs(const Tensor& w, const Tensor& mixture, const ImageSource& source,
                                    const Batch& batch) {
    LabelledImages images = source.prepare(batch);
    return {w.detach(), mixture.detach(), std::move(images.images), std::move(images.labels)};
  }

  const SupernetProblem& base_;
  int64_t batch_;
  Derivatives derivatives_;
  // Replaying a graph changes what it holds, but nothing that a caller can see.
  mutable Captured inner_w_, inner_mixture_, outer_, outer_mixture_;
  mutable Products products_;
  mutable Curvature curvature_;
  mutable int64_t at_point_ = 0;    // which linearization's point the products' graph holds
  mutable int64_t curvatures_ = 0;  // made so far; the graph holds the last one's point
};

class CapturedLinearization : public Linearization {
 public:
  CapturedLinearization(const CapturedSupernet& problem, const Tensor& w, const Tensor& x, const Batch& batch)
      : problem_(problem),
        w_(w),
        x_(x),
        batch_(batch),
        mixture_(problem.point(x, batch)),
        inputs_(CapturedSupernet::inputs(w, mixture_.value, problem.base_.train(), batch)) {}

  Tensor gradient() override { return here().gradient(); }
  Tensor hessian(const Tensor& v) override { return here().hessian(v); }
  Tensor cross(const Tensor& v) override { return problem_.in_alpha(mixture_, here().cross(v)); }
  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) override {
    auto both = here().hessian_and_cross(v);
    both.second = problem_.in_alpha(mixture_, both.second);
    return both;
  }
  Tensor cross_transposed(const Tensor& u) override {
    if (!problem_.derivatives_.taped()) return plain().cross_transposed(u);
    return here().cross_transposed(problem_.in_alpha(mixture_, u));
  }
  Tensor gauss_newton(const Tensor& v) override {
    return problem_.derivatives_.taped() ? here().gauss_newton(v) : plain().gauss_newton(v);
  }

 private:
  Linearization& plain() {
    if (!plain_) plain_ = problem_.base_.linearize(w_, x_, batch_);
    return *plain_;
  }
  // Another linearization may have moved the graph to its own point since.
  Products& here() {
    if (point_ == 0 || problem_.at_point_ != point_) {
      problem_.products_.at(inputs_);
      static int64_t visits = 0;
      problem_.at_point_ = point_ = ++visits;
    }
    return problem_.products_;
  }

  const CapturedSupernet& problem_;
  Tensor w_, x_;
  Batch batch_;
  MixturePoint mixture_;
  std::vector<Tensor> inputs_;
  int64_t point_ = 0;
  std::unique_ptr<Linearization> plain_;
};

std::unique_ptr<Linearization> CapturedSupernet::linearize(const Tensor& w, const Tensor& x,
                                                           const Batch& batch) const {
  if (!fits(base_.train(), batch)) return base_.linearize(w, x, batch);
  return std::make_unique<CapturedLinearization>(*this, w, x, batch);
}

}  // namespace

bool tape_is_trusted(const SupernetProblem& base) {
  return !base.initial_outer(0).is_cuda() || base.supernet().space().kind != SpaceKind::darts;
}

std::unique_ptr<SupernetEngine> capture_supernet(const SupernetProblem& base, int64_t batch, bool tape) {
  return std::make_unique<CapturedSupernet>(base, batch, tape);
}

}  // namespace bilevel::nas
