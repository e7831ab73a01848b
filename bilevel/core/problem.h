#pragma once
// What a user writes: two losses of (w, x, batch), as pure functions.
//
//     min_x f(x, w*(x))    such that    w*(x) = argmin_w g(x, w)
//
// w and x are flat vectors (core/layout.h gives them shape). A loss is a scalar tensor. Nothing may be
// written to w or x, and nothing random may be drawn but from batch.seed: the library evaluates the losses
// again at the same place when it recomputes iterates, and at w +- a step when it takes differences.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bilevel/core/batch.h"
#include "bilevel/core/error_bound.h"
#include "bilevel/core/layout.h"
#include "bilevel/core/linearization.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

// The inner loss taken apart, g = loss(outputs) + regulariser, which is what the Gauss-Newton matrix needs.
struct InnerParts {
  Tensor outputs;                             // the model's outputs at (w, x), differentiable in w
  std::function<Tensor(const Tensor&)> loss;  // of the outputs alone: the data's term of g
  Tensor regularizer;                         // scalar, direct in w; undefined = none
};

// f and its two gradients, which come from one pass.
struct OuterGradients {
  Tensor loss;  // scalar
  Tensor w;     // df/dw; undefined from outer_gradient_in_outer()
  Tensor x;     // df/dx; zeros where f has no x in it
};

class Problem {
 public:
  virtual ~Problem() = default;

  virtual Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const = 0;  // g
  virtual Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const = 0;  // f
  virtual Tensor initial_inner(uint64_t seed) const = 0;
  virtual Tensor initial_outer(uint64_t seed) const = 0;

  // Everything below has a default.

  // How many examples the full sets hold: for the counting of samples, and for drawing batches.
  virtual int64_t inner_samples() const { return 1; }
  virtual int64_t outer_samples() const { return 1; }

  // Closed forms, for problems that have them; the defaults differentiate the losses.
  virtual std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                                   const Batch& batch) const;
  virtual Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const;
  virtual Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x,
                                         const Batch& batch) const;  // grad_x g
  virtual OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const;
  // f and df/dx for whoever has no use for df/dw, which is most of the work in a network. The default leaves
  // it out of outer_gradients().
  virtual OuterGradients outer_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const;

  // g by parts, where the Gauss-Newton matrix is to be available.
  virtual std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const;

  // A starting point and a rate that belong to x and are learned. `inner_start` returns w_0 as a
  // differentiable function of x; `inner_rate` a positive rate: one element, or one per entry of
  // `inner_layout`. Undefined (the default) = not learned: the start is given and the rate is the inner
  // optimiser's option.
  virtual Tensor inner_start(const Tensor& x) const;
  virtual Tensor inner_rate(const Tensor& x) const;
  virtual const Layout* inner_layout() const { return nullptr; }
  // False where g itself has no x in it, as when only the start or the rate is learned. Said aloud, because a
  // loss that has lost its x by accident (a detached tensor) would otherwise give a silent zero.
  virtual bool inner_loss_uses_outer() const { return true; }

  // Constants of both losses on the full sets at x, for rigorous error bounds; nullopt (the default) = not
  // known.
  virtual std::optional<LossConstants> loss_constants(const Tensor& x) const;

  virtual void project_outer_(Tensor& x) const;
  virtual std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const;
};

// A problem made of two functions: the three-line way in.
class FunctionProblem : public Problem {
 public:
  using Loss = std::function<Tensor(const Tensor& w, const Tensor& x, const Batch& batch)>;
  FunctionProblem(Loss inner, Loss outer, Tensor initial_inner, Tensor initial_outer);

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;

 private:
  Loss inner_, outer_;
  Tensor initial_inner_, initial_outer_;
};

}  // namespace bilevel
