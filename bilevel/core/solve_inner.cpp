#include "bilevel/core/solve_inner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "bilevel/core/require.h"
#include "bilevel/core/solver_support.h"

namespace bilevel {
namespace {

constexpr std::string_view inner_solver = "solve_inner";

// What conjugate gradients may leave and how many products they may take; a factorisation needs neither.
struct NewtonStepLimits {
  double tolerance = 0;
  int64_t products = 0;
};

// -(H + damping I)^-1 gradient; undefined where that matrix is not positive definite.
Tensor newton_direction(Linearization& linear, const Tensor& gradient, double damping, int64_t direct_limit,
                        const NewtonStepLimits& limits) {
  const MatrixProduct product = [&](const Tensor& v) { return at::add(linear.hessian(v), v, damping); };
  LinearResult result;
  if (gradient.numel() <= direct_limit) {
    result = direct_solve(product, gradient, {.limit = direct_limit});
  } else {
    KrylovSolveOptions cg;
    cg.max_iterations = std::min(2 * gradient.numel(), limits.products);
    cg.relative_tolerance = std::max(limits.tolerance, gradient.scalar_type() == at::kDouble ? 1e-10 : 1e-4);
    result = conjugate_gradient(product, gradient, cg);
  }
  const bool usable = result.status == Status::converged || result.status == Status::max_iterations;
  return usable ? -result.solution : Tensor();
}

// The largest step of 1, 1/2, 1/4, ... that is one forward. Far away the loss must fall; near the solution it
// is flat to rounding, and the gradient must fall instead. Undefined where no step is.
Tensor line_search(Oracle& oracle, const Tensor& x, const Tensor& w, const Tensor& gradient,
                   const Tensor& direction) {
  const double loss = oracle.inner_loss(w, x).item<double>();
  const double slope = gradient.dot(direction).item<double>(), gradient_norm = detail::norm_of(gradient);
  for (double step = 1; step > 1e-10; step /= 2) {
    const Tensor candidate = at::add(w, direction, step);
    const double new_loss = oracle.inner_loss(candidate, x).item<double>();
    if (!std::isfinite(new_loss)) continue;
    // Strictly: an equal loss would let rounding walk on until the last iteration.
    const bool falls = new_loss < loss && new_loss <= loss + 1e-4 * step * slope;
    const bool flat = std::abs(new_loss - loss) <= 1e-9 * (1 + std::abs(loss)) && step == 1;
    if (falls ||
        (flat && detail::norm_of(oracle.inner_gradient(candidate, x, Batch{})) < 0.9 * gradient_norm)) {
      return candidate;
    }
  }
  return {};
}

class InnerSolve {
 public:
  InnerSolve(Oracle& oracle, const Tensor& x, const Tensor& w, const InnerSolveOptions& options)
      : oracle_(oracle), x_(x), options_(options), products_before_(oracle.counts().hessian) {
    result_.w = w;
  }

  SolvedInner run() {
    result_.status = Status::max_iterations;
    while (result_.iterations < options_.iterations && products_left() > 0 && step()) ++result_.iterations;
    finish();
    return result_;
  }

 private:
  int64_t products() const { return oracle_.counts().hessian - products_before_; }
  int64_t products_left() const {
    return options_.products > 0 ? options_.products - products() : std::numeric_limits<int64_t>::max();
  }
  double target() const { return options_.relative_tolerance * scale_; }

  // False where there is nothing more to do.
  bool step() {
    const auto linear = oracle_.linearize(result_.w, x_, Batch{});
    const Tensor gradient = linear->gradient();
    const double norm = detail::norm_of(gradient);
    if (!std::isfinite(norm)) {
      result_.status = Status::not_finite;
      return false;
    }
    if (scale_ == 0) scale_ = options_.gradient_scale > 0 ? options_.gradient_scale : norm;
    if (norm <= target()) return false;
    // As precise as the quadratic model deserves (Dembo, Eisenstat and Steihaug 1982): the steps still shrink
    // the gradient by its own square in the end, at a fraction of the products. No more than is asked for.
    const NewtonStepLimits limits{.tolerance = std::max(std::min(0.1, norm / scale_), 0.5 * target() / norm),
                                  .products = products_left()};
    const auto direction = [&] {
      return newton_direction(*linear, gradient, damping_, options_.direct_limit, limits);
    };
    Tensor along = direction();
    while (!along.defined() && damping_ < 1e12 && products_left() > 0) {
      damping_ = std::max(10 * damping_, 1e-6 * norm);
      along = direction();
    }
    const Tensor next = along.defined() ? line_search(oracle_, x_, result_.w, gradient, along) : Tensor();
    if (!next.defined()) {
      result_.status = Status::breakdown;  // or rounding, as finish() sees
      return false;
    }
    result_.w = next;
    damping_ = damping_ > 1e-12 ? damping_ / 10 : 0;
    return true;
  }

  void finish() {
    result_.products = products();
    result_.gradient_norm = detail::norm_of(oracle_.inner_gradient(result_.w, x_, Batch{}));
    result_.solved = result_.gradient_norm <= target();
    if (!result_.solved && std::isfinite(result_.gradient_norm)) {
      const double curved = detail::norm_of(oracle_.linearize(result_.w, x_, Batch{})->hessian(result_.w));
      const bool is_double = result_.w.scalar_type() == at::kDouble;
      // H w is what the terms of the gradient are made of: below some of its last digits all is rounding.
      const double rounding = options_.relative_tolerance > 0
                                  ? 1000 * detail::epsilon_of(result_.w) * (scale_ + curved)
                                  : (is_double ? 1e-9 : 1e-3) * (1 + curved);
      result_.solved = result_.gradient_norm <= rounding;
    }
    if (result_.solved) result_.status = Status::converged;
    if (!std::isfinite(result_.gradient_norm)) result_.status = Status::not_finite;
  }

  Oracle& oracle_;
  const Tensor& x_;
  const InnerSolveOptions& options_;
  int64_t products_before_;
  SolvedInner result_;
  double damping_ = 0;
  double scale_ = 0;  // of the gradient
};

}  // namespace

void InnerSolveOptions::validate() const {
  require_at_least(inner_solver, "iterations", iterations, 0);
  require_at_least(inner_solver, "products", products, 0);
  require_at_least(inner_solver, "direct_limit", direct_limit, 0);
  require_nonnegative(inner_solver, "relative_tolerance", relative_tolerance);
  require_nonnegative(inner_solver, "gradient_scale", gradient_scale);
}

SolvedInner solve_inner(Oracle& oracle, const Tensor& x, const Tensor& w, const InnerSolveOptions& options) {
  options.validate();
  return InnerSolve(oracle, x, w, options).run();
}

}  // namespace bilevel
