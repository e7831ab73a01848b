#include "bilevel/nas/captured_supernet.h"

#include <stdexcept>

#ifdef BILEVEL_HAS_CUDA

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/core/linearization.h"
#include "bilevel/nas/tape/taped_supernet.h"

namespace bilevel::nas {
namespace {

// cuDNN's algorithms that give the same bits every time, while an object lives: what a graph captures it
// keeps.
class SameBits {
 public:
  SameBits() : before_(at::globalContext().deterministicCuDNN()) {
    at::globalContext().setDeterministicCuDNN(true);
  }
  ~SameBits() { at::globalContext().setDeterministicCuDNN(before_); }
  SameBits(const SameBits&) = delete;
  SameBits& operator=(const SameBits&) = delete;

 private:
  bool before_;
};

// A function of tensors whose shapes never change, captured when it is first called. Inputs are copied to
// where the graph reads them, outputs from where it writes them.
class Captured {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;
  // `after`: its memory is shared, and what it left there is read, so that it is always replayed before this
  // one.
  explicit Captured(Function function, const Captured* after = nullptr)
      : function_(std::move(function)), after_(after) {}

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) {
    if (!captured_) capture(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) inputs_[i].copy_(inputs[i], /*non_blocking=*/true);
    graph_.replay();
    std::vector<Tensor> results;
    for (const Tensor& output : outputs_) results.push_back(output.clone());
    return results;
  }

 private:
  void capture(const std::vector<Tensor>& inputs) {
    // The function sees the same memory under another version counter: a graph that is kept must not complain
    // that its inputs change, since that is what a replay is for.
    std::vector<Tensor> seen;
    for (const Tensor& input : inputs) {
      inputs_.push_back(input.detach().clone());
      seen.push_back(inputs_.back().variable_data());
    }
    const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
    side.synchronize();
    c10::cuda::device_synchronize();
    {
      const c10::cuda::CUDAStreamGuard on(side);
      const SameBits every_time;
      // Libraries choose their algorithms and take their memory in the first calls, which no graph can hold.
      for (int i = 0; i < 3; ++i) function_(seen);
      side.synchronize();
      if (after_ != nullptr) {
        graph_.capture_begin(after_->pool_);
      } else {
        graph_.capture_begin();
      }
      outputs_ = function_(seen);
      graph_.capture_end();
      pool_ = graph_.pool();
    }
    captured_ = true;
    c10::cuda::device_synchronize();
  }

  Function function_;
  const Captured* after_;
  bool captured_ = false;
  at::cuda::CUDAGraph graph_;
  at::cuda::MempoolId_t pool_{};
  std::vector<Tensor> inputs_, outputs_;
};

// The losses on one pair of tensors, which a graph reads.
class OnImages : public Problem {
 public:
  OnImages(const SupernetProblem& base, LabelledImages images) : base_(base), images_(std::move(images)) {}
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch&) const override {
    return base_.loss(w, base_.mixture(x, 0), images_);
  }
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return inner_loss(w, x, batch);
  }
  Tensor initial_inner(uint64_t seed) const override { return base_.initial_inner(seed); }
  Tensor initial_outer(uint64_t seed) const override { return base_.initial_outer(seed); }

 private:
  const SupernetProblem& base_;
  LabelledImages images_;
};

// The other spaces have tapes and kernels too, but these have only been compiled: no GPU has run them.
std::optional<TapedSupernet> proven_tape(const SupernetProblem& base) {
  if (base.supernet().space().kind != SpaceKind::nasbench201) return std::nullopt;
  return TapedSupernet::make(base);
}

// The derivatives that are captured, of inputs w, x, images and labels: by the tape where the supernet has
// one, else by automatic differentiation.
class Derivatives {
 public:
  explicit Derivatives(const SupernetProblem& base) : base_(base), taped_(proven_tape(base)) {}

  bool taped() const { return taped_.has_value(); }
  Tensor in_w(const std::vector<Tensor>& in) const {
    if (taped_) return taped_->gradient(in[0], base_.softmax_point(in[1]).value, {in[2], in[3]});
    return on_images(in).inner_gradient(in[0], in[1], {});
  }
  // The second input is the mixture, not alpha.
  Tensor in_w_at_mixture(const std::vector<Tensor>& in) const {
    if (taped_) return taped_->gradient(in[0], in[1], {in[2], in[3]});
    const FunctionProblem::Loss loss = [&](const Tensor& w, const Tensor& mixture, const Batch&) {
      return base_.loss(w, mixture, {in[2], in[3]});
    };
    return FunctionProblem(loss, loss, in[0], in[1]).inner_gradient(in[0], in[1], {});
  }
  Tensor in_x(const std::vector<Tensor>& in) const {
    if (taped_) return taped_->gradient_in_alpha(in[0], base_.softmax_point(in[1]), {in[2], in[3]});
    return on_images(in).inner_gradient_in_outer(in[0], in[1], {});
  }
  OuterGradients in_both(const std::vector<Tensor>& in) const {
    if (taped_) return taped_->gradients(in[0], base_.softmax_point(in[1]), {in[2], in[3]});
    return on_images(in).outer_gradients(in[0], in[1], {});
  }
  // `problem` must live as long as the result.
  std::unique_ptr<Linearization> linearize(const std::vector<Tensor>& in,
                                           std::optional<OnImages>& problem) const {
    if (taped_) return taped_->linearize(in[0], base_.softmax_point(in[1]), {in[2], in[3]});
    problem.emplace(on_images(in));
    return problem->linearize(in[0], in[1], {});
  }

 private:
  OnImages on_images(const std::vector<Tensor>& in) const { return {base_, {in[2], in[3]}}; }

  const SupernetProblem& base_;
  std::optional<TapedSupernet> taped_;
};

// The forward pass and the first backward pass in one graph, products with their results in others: a second
// product at the same point costs only itself.
class Products {
 public:
  explicit Products(const Derivatives& derivatives)
      : point_([this, &derivatives](const std::vector<Tensor>& in) {
          kept_.reset();  // what the last call kept is free again before the next takes memory
          kept_ = derivatives.linearize(in, problem_);
          if (!derivatives.taped()) kept_->gradient();  // the first backward pass belongs to the point
          return std::vector<Tensor>{};
        }),
        gradient_(
            [this](const std::vector<Tensor>&) { return std::vector<Tensor>{kept_->gradient().clone()}; },
            &point_),
        hessian_([this](const std::vector<Tensor>& in) { return std::vector<Tensor>{kept_->hessian(in[0])}; },
                 &point_),
        cross_([this](const std::vector<Tensor>& in) { return std::vector<Tensor>{kept_->cross(in[0])}; },
               &point_) {}

  void at(const std::vector<Tensor>& inputs) { point_(inputs); }
  Tensor gradient() { return gradient_({})[0]; }
  Tensor hessian(const Tensor& v) { return hessian_({v})[0]; }
  Tensor cross(const Tensor& v) { return cross_({v})[0]; }

 private:
  std::optional<OnImages> problem_;
  std::unique_ptr<Linearization> kept_;
  Captured point_, gradient_, hessian_, cross_;
};

class CapturedSupernet : public SupernetEngine {
 public:
  CapturedSupernet(const SupernetProblem& base, int64_t batch)
      : base_(base),
        batch_(batch),
        derivatives_(base),
        inner_w_(
            [this](const std::vector<Tensor>& in) { return std::vector<Tensor>{derivatives_.in_w(in)}; }),
        inner_w_at_([this](const std::vector<Tensor>& in) {
          return std::vector<Tensor>{derivatives_.in_w_at_mixture(in)};
        }),
        inner_x_(
            [this](const std::vector<Tensor>& in) { return std::vector<Tensor>{derivatives_.in_x(in)}; }),
        outer_([this](const std::vector<Tensor>& in) {
          const OuterGradients g = derivatives_.in_both(in);
          return std::vector<Tensor>{g.loss.detach(), g.w, g.x};
        }),
        products_(derivatives_) {}

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
    return inner_w_(inputs(w, x, base_.train(), batch))[0];
  }
  Tensor inner_gradient_at(const Tensor& w, const Tensor& mixture, const Batch& batch) const override {
    if (!fits(base_.train(), batch)) return base_.inner_gradient_at(w, mixture, batch);
    return inner_w_at_(inputs(w, mixture, base_.train(), batch))[0];
  }
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    if (!fits(base_.train(), batch)) return base_.inner_gradient_in_outer(w, x, batch);
    return inner_x_(inputs(w, x, base_.train(), batch))[0];
  }
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    if (!fits(base_.valid(), batch)) return base_.outer_gradients(w, x, batch);
    std::vector<Tensor> all = outer_(inputs(w, x, base_.valid(), batch));
    OuterGradients gradients;
    gradients.loss = all[0];
    gradients.w = all[1];
    gradients.x = all[2];
    return gradients;
  }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;

 private:
  friend class CapturedLinearization;
  bool fits(const ImageSource& source, const Batch& batch) const {
    return batch.size(source.samples) == batch_ && base_.sampling() == Sampling::softmax;
  }
  std::vector<Tensor> inputs(const Tensor& w, const Tensor& x, const ImageSource& source,
                             const Batch& batch) const {
    LabelledImages images = source.prepare(batch);
    return {w, x, std::move(images.images), std::move(images.labels)};
  }

  const SupernetProblem& base_;
  int64_t batch_;
  Derivatives derivatives_;
  // Replaying a graph changes what it holds, but nothing that a caller can see.
  mutable Captured inner_w_, inner_w_at_, inner_x_, outer_;
  mutable Products products_;
  mutable int64_t at_point_ = 0;  // which linearization's point the products' graph holds
};

class CapturedLinearization : public Linearization {
 public:
  CapturedLinearization(const CapturedSupernet& problem, const Tensor& w, const Tensor& x, const Batch& batch)
      : problem_(problem),
        w_(w),
        x_(x),
        batch_(batch),
        inputs_(problem.inputs(w, x, problem.base_.train(), batch)) {}

  Tensor gradient() override {
    visit();
    return problem_.products_.gradient();
  }
  Tensor hessian(const Tensor& v) override {
    visit();
    return problem_.products_.hessian(v);
  }
  Tensor cross(const Tensor& v) override {
    visit();
    return problem_.products_.cross(v);
  }
  Tensor cross_transposed(const Tensor& u) override { return plain().cross_transposed(u); }
  Tensor gauss_newton(const Tensor& v) override { return plain().gauss_newton(v); }

 private:
  // Another linearization may have moved the graph to its own point since.
  void visit() {
    if (point_ != 0 && problem_.at_point_ == point_) return;
    problem_.products_.at(inputs_);
    static int64_t visits = 0;
    problem_.at_point_ = point_ = ++visits;
  }
  Linearization& plain() {
    if (!plain_) plain_ = problem_.base_.linearize(w_, x_, batch_);
    return *plain_;
  }

  const CapturedSupernet& problem_;
  Tensor w_, x_;
  Batch batch_;
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

bool can_capture() { return at::hasCUDA(); }

std::unique_ptr<SupernetEngine> capture_supernet(const SupernetProblem& base, int64_t batch) {
  return std::make_unique<CapturedSupernet>(base, batch);
}

}  // namespace bilevel::nas

#else

namespace bilevel::nas {

bool can_capture() { return false; }

std::unique_ptr<SupernetEngine> capture_supernet(const SupernetProblem& /*base*/, int64_t /*batch*/) {
  throw std::invalid_argument("captured graphs need a LibTorch with CUDA");
}

}  // namespace bilevel::nas

#endif
