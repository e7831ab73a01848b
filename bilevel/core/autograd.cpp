#include "bilevel/core/autograd.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bilevel/core/errors.h"

namespace bilevel::autograd {
namespace {

using torch::autograd::grad;

Tensor leaf(const Tensor& t) { return t.detach().requires_grad_(true); }

// What a user's loss may do wrong, said in the user's words. On a GPU the finiteness is not read here: it
// would stop the queue at every inner step; the inner loop reads it once at its end.
Tensor checked_scalar(Tensor loss, const Tensor& w, std::string_view name) {
  if (!loss.defined()) throw std::invalid_argument(fmt::format("{} returned an undefined tensor", name));
  if (loss.numel() != 1) {
    throw std::invalid_argument(
        fmt::format("{} must return a scalar, but returned a tensor of {} elements: take its mean or sum",
                    name, loss.numel()));
  }
  if (loss.scalar_type() != w.scalar_type()) {
    throw std::invalid_argument(
        fmt::format("{} returned {}, but w is {}: convert the data, or precision is lost in silence", name,
                    c10::toString(loss.scalar_type()), c10::toString(w.scalar_type())));
  }
  if (loss.device().is_cpu()) {
    const double value = loss.item<double>();
    if (!std::isfinite(value)) {
      throw NotFiniteError(
          fmt::format("{} returned {}: its input has |w| = {:g}; check the data, or lower the "
                      "inner rate if w has run away",
                      name, value, w.detach().norm().item<double>()));
    }
  }
  return loss;
}

Tensor inner_loss(const Problem& problem, const Tensor& w, const Tensor& x, const Batch& batch) {
  return checked_scalar(problem.inner_loss(w, x, batch), w, "inner_loss");
}

[[noreturn]] void throw_independent(std::string_view loss, std::string_view variable, std::string_view hint) {
  throw std::invalid_argument(
      fmt::format("{} does not depend on {}: was it detached, or left out? {}", loss, variable, hint));
}

Tensor defined_gradient(const Tensor& gradient, std::string_view loss, std::string_view variable) {
  if (!gradient.defined()) {
    throw_independent(loss, variable, "There is nothing to differentiate.");
  }
  return gradient;
}

Tensor gradient_of(const Tensor& loss, const Tensor& variable, bool create_graph) {
  if (!loss.requires_grad()) return {};
  return grad({loss}, {variable}, {}, /*retain_graph=*/create_graph, create_graph, /*allow_unused=*/true)[0];
}

// d<y, u>/d input on a kept graph, zeros where y has no input in it.
Tensor product(const Tensor& y, const Tensor& input, const Tensor& u) {
  if (!y.requires_grad()) return at::zeros_like(input);
  Tensor result =
      grad({y}, {input}, {u}, /*retain_graph=*/true, /*create_graph=*/false, /*allow_unused=*/true)[0];
  return result.defined() ? result : at::zeros_like(input);
}

class AutogradLinearization : public Linearization {
 public:
  AutogradLinearization(const Problem& problem, const Tensor& w, const Tensor& x, Batch batch)
      : problem_(problem), batch_(std::move(batch)), w_(leaf(w)), x_(leaf(x)) {
    at::AutoGradMode enable(true);
    loss_ = inner_loss(problem_, w_, x_, batch_);
  }

  Tensor gradient() override { return gradient_graph().detach(); }

  Tensor hessian(const Tensor& v) override {
    at::AutoGradMode enable(true);
    return product(gradient_graph(), w_, v);
  }

  Tensor cross(const Tensor& v) override {
    at::AutoGradMode enable(true);
    const Tensor& g = gradient_graph();
    return cross_or_zero(g.requires_grad() ? grad({g}, {x_}, {v}, true, false, true)[0] : Tensor());
  }

  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) override {
    at::AutoGradMode enable(true);
    const Tensor& g = gradient_graph();
    if (!g.requires_grad()) return {at::zeros_like(w_), cross_or_zero({})};
    auto both = grad({g}, {w_, x_}, {v}, true, false, true);
    return {both[0].defined() ? both[0] : at::zeros_like(w_), cross_or_zero(both[1])};
  }

  Tensor cross_transposed(const Tensor& u) override {
    at::AutoGradMode enable(true);
    if (!problem_.inner_loss_uses_outer()) return at::zeros_like(w_);
    return product(outer_gradient_graph(), w_, u);
  }

  Tensor gauss_newton(const Tensor& v) override {
    at::AutoGradMode enable(true);
    prepare_parts();
    const Tensor jv = product(parts_->transposed, parts_->cotangent, v);
    const Tensor curved = product(parts_->loss_gradient, parts_->output_leaf, jv);
    Tensor result = product(parts_->outputs, w_, curved);
    if (parts_->regularizer_gradient.defined())
      result = result + product(parts_->regularizer_gradient, w_, v);
    return result;
  }

 private:
  struct Parts {
    Tensor outputs;               // model(w), on the graph
    Tensor cotangent;             // a dummy u; d(J'u)/du in the direction v is J v (two backward passes)
    Tensor transposed;            // J'u
    Tensor output_leaf;           // the outputs, cut off from w
    Tensor loss_gradient;         // dL/d outputs at the leaf
    Tensor regularizer_gradient;  // undefined = no regulariser
  };

  const Tensor& gradient_graph() {
    if (!gradient_.defined()) {
      at::AutoGradMode enable(true);
      gradient_ = defined_gradient(gradient_of(loss_, w_, true), "inner_loss", "w");
    }
    return gradient_;
  }

  const Tensor& outer_gradient_graph() {
    if (!outer_gradient_.defined()) {
      outer_gradient_ = gradient_of(loss_, x_, true);
      if (!outer_gradient_.defined()) {
        throw_independent(
            "inner_loss", "x",
            "The hypergradient would be zero in silence. Override inner_loss_uses_outer() to return "
            "false if only the start or the rate belongs to x.");
      }
    }
    return outer_gradient_;
  }

  // grad_w g may have no x in it while g has (then C = 0). A g that has lost its x is a mistake, unless the
  // problem says that it is meant; it is looked for only when a product comes out empty, so that it costs
  // nothing otherwise.
  Tensor cross_or_zero(const Tensor& found) {
    if (found.defined()) return found;
    if (problem_.inner_loss_uses_outer()) outer_gradient_graph();
    return at::zeros_like(x_);
  }

  void prepare_parts() {
    if (parts_) return;
    std::optional<InnerParts> parts = problem_.inner_parts(w_, x_.detach(), batch_);
    if (!parts) {
      throw std::invalid_argument(
          "curvature gauss-newton needs a problem that overrides inner_parts(): this one does not; use "
          "hessian or damped curvature");
    }
    Parts p;
    p.outputs = parts->outputs;
    if (!p.outputs.requires_grad()) throw_independent("inner_parts().outputs", "w", "");
    p.cotangent = at::zeros_like(p.outputs.detach()).requires_grad_(true);
    p.transposed = defined_gradient(
        grad({p.outputs}, {w_}, {p.cotangent}, /*retain_graph=*/true, /*create_graph=*/true, true)[0],
        "inner_parts().outputs", "w");
    p.output_leaf = leaf(p.outputs);
    const Tensor loss = checked_scalar(parts->loss(p.output_leaf), w_, "inner_parts().loss");
    p.loss_gradient =
        defined_gradient(gradient_of(loss, p.output_leaf, true), "inner_parts().loss", "its outputs");
    if (parts->regularizer.defined()) p.regularizer_gradient = gradient_of(parts->regularizer, w_, true);
    parts_ = std::move(p);
  }

  const Problem& problem_;
  Batch batch_;
  Tensor w_, x_, loss_;
  Tensor gradient_;        // grad_w g, on the graph
  Tensor outer_gradient_;  // grad_x g, on the graph
  std::optional<Parts> parts_;
};

}  // namespace

Tensor inner_gradient(const Problem& problem, const Tensor& w, const Tensor& x, const Batch& batch) {
  at::AutoGradMode enable(true);
  const Tensor w_leaf = leaf(w);
  const Tensor loss = inner_loss(problem, w_leaf, x.detach(), batch);
  return defined_gradient(gradient_of(loss, w_leaf, false), "inner_loss", "w");
}

Tensor inner_gradient_in_outer(const Problem& problem, const Tensor& w, const Tensor& x, const Batch& batch) {
  at::AutoGradMode enable(true);
  if (!problem.inner_loss_uses_outer()) return at::zeros_like(x);
  const Tensor x_leaf = leaf(x);
  const Tensor loss = inner_loss(problem, w.detach(), x_leaf, batch);
  return defined_gradient(gradient_of(loss, x_leaf, false), "inner_loss", "x");
}

OuterGradients outer_gradients(const Problem& problem, const Tensor& w, const Tensor& x, const Batch& batch) {
  at::AutoGradMode enable(true);
  const Tensor w_leaf = leaf(w);
  const Tensor x_leaf = leaf(x);
  const Tensor loss = checked_scalar(problem.outer_loss(w_leaf, x_leaf, batch), w_leaf, "outer_loss");
  OuterGradients result;
  if (loss.requires_grad()) {
    auto both = grad({loss}, {w_leaf, x_leaf}, {}, false, false, true);
    result.w = both[0];
    result.x = both[1];
  }
  defined_gradient(result.w, "outer_loss", "w");
  if (!result.x.defined()) result.x = at::zeros_like(x);  // the common case: f has no x of its own
  result.loss = loss.detach();
  return result;
}

std::unique_ptr<Linearization> linearize(const Problem& problem, const Tensor& w, const Tensor& x,
                                         const Batch& batch) {
  return std::make_unique<AutogradLinearization>(problem, w, x, batch);
}

Tensor vector_jacobian(const TensorFunction& function, const Tensor& x, const Tensor& u) {
  at::AutoGradMode enable(true);
  const Tensor x_leaf = leaf(x);
  const Tensor y = function(x_leaf);
  return product(y, x_leaf, u.reshape(y.sizes()));
}

Tensor jacobian_vector(const TensorFunction& function, const Tensor& x, const Tensor& u) {
  at::AutoGradMode enable(true);
  const Tensor x_leaf = leaf(x);
  const Tensor y = function(x_leaf);
  if (!y.requires_grad()) return at::zeros_like(y);
  const Tensor cotangent = at::zeros_like(y.detach()).requires_grad_(true);
  const Tensor transposed = grad({y}, {x_leaf}, {cotangent}, true, true, true)[0];
  if (!transposed.defined()) return at::zeros_like(y.detach());
  return product(transposed, cotangent, u);
}

}  // namespace bilevel::autograd
