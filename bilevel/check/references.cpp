#include "bilevel/check/references.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "bilevel/hypergradients/exact.h"

namespace bilevel {
namespace {

using torch::autograd::grad;

constexpr int64_t direct_limit = 1000;
constexpr int64_t most_products = 1000;  // of MINRES above that

double length(const Tensor& t) { return t.norm().item<double>(); }

// -(H + damping I)^-1 gradient; undefined where that matrix is not positive definite. `tolerance` is that of
// conjugate gradients, `most_steps` what is left to them; a factorisation needs neither.
Tensor newton_direction(Linearization& linear, const Tensor& gradient, double damping, double tolerance,
                        int64_t most_steps) {
  const MatrixProduct product = [&](const Tensor& v) { return at::add(linear.hessian(v), v, damping); };
  LinearResult result;
  if (gradient.numel() <= direct_limit) {
    result = direct_solve(product, gradient, {.limit = direct_limit});
  } else {
    KrylovSolveOptions cg;
    cg.max_iterations = std::min(2 * gradient.numel(), most_steps);
    cg.relative_tolerance = std::max(tolerance, gradient.scalar_type() == at::kDouble ? 1e-10 : 1e-4);
    result = conjugate_gradient(product, gradient, cg);
  }
  const bool usable = result.status == Status::converged || result.status == Status::max_iterations;
  return usable ? -result.solution : Tensor();
}

}  // namespace

SolvedInner solve_inner(Oracle& oracle, const Tensor& x, const Tensor& w, const NewtonLimits& limits) {
  const bool is_double = w.scalar_type() == at::kDouble;
  SolvedInner result;
  result.w = w;
  double damping = 0;
  double gradient_norm = 0, first_norm = 0;
  const int64_t products_before = oracle.counts().hessian;
  for (; result.iterations < limits.iterations; ++result.iterations) {
    const int64_t left = limits.products > 0 ? limits.products - (oracle.counts().hessian - products_before)
                                             : std::numeric_limits<int64_t>::max();
    if (left <= 0) break;
    const auto linear = oracle.linearize(result.w, x, Batch{});
    const Tensor gradient = linear->gradient();
    gradient_norm = length(gradient);
    if (!std::isfinite(gradient_norm) || gradient_norm == 0) break;
    if (result.iterations == 0) first_norm = gradient_norm;
    // As precise as the quadratic model deserves (Dembo, Eisenstat and Steihaug 1982): the steps still shrink
    // the gradient by its own square in the end, at a fraction of the products.
    const double tolerance = std::min(0.1, gradient_norm / first_norm);
    Tensor direction = newton_direction(*linear, gradient, damping, tolerance, left);
    while (!direction.defined() && damping < 1e12) {
      damping = std::max(10 * damping, 1e-6 * gradient_norm);
      direction = newton_direction(*linear, gradient, damping, tolerance, left);
    }
    if (!direction.defined()) break;

    // Far away the loss must fall; near the solution it is flat to rounding, and the gradient must fall
    // instead.
    const double loss = oracle.inner_loss(result.w, x).item<double>();
    const double slope = gradient.dot(direction).item<double>();
    bool moved = false;
    for (double step = 1; step > 1e-10; step /= 2) {
      const Tensor candidate = at::add(result.w, direction, step);
      const double new_loss = oracle.inner_loss(candidate, x).item<double>();
      if (!std::isfinite(new_loss)) continue;
      // Strictly: an equal loss would let rounding walk on until the last iteration.
      const bool falls = new_loss < loss && new_loss <= loss + 1e-4 * step * slope;
      const bool flat = std::abs(new_loss - loss) <= 1e-9 * (1 + std::abs(loss)) && step == 1;
      if (falls || (flat && length(oracle.inner_gradient(candidate, x, Batch{})) < 0.9 * gradient_norm)) {
        result.w = candidate;
        moved = true;
        break;
      }
    }
    if (!moved) break;  // rounding: no step makes it better
    damping = damping > 1e-12 ? damping / 10 : 0;
  }
  result.gradient_norm = length(oracle.inner_gradient(result.w, x, Batch{}));
  const double scale = 1 + length(oracle.linearize(result.w, x, Batch{})->hessian(result.w));
  result.solved = result.gradient_norm <= (is_double ? 1e-9 : 1e-3) * scale;
  return result;
}

ImplicitReference implicit_reference(Oracle& oracle, const Tensor& x, const Tensor& w,
                                     const CurvatureOptions& curvature, const NewtonLimits& limits) {
  ImplicitReference result;
  result.inner = solve_inner(oracle, x, w, limits);
  if (!result.inner.solved) {
    result.why =
        fmt::format("the inner problem could not be solved: Newton's method ended at |grad_w g| = {:.3g}",
                    result.inner.gradient_norm);
    return result;
  }
  Trajectory at_solution;
  at_solution.optimizer = make_inner_optimizer({});
  at_solution.final = at_solution.optimizer->start(result.inner.w);
  const Exact exact(ExactOptions{.curvature = curvature, .direct_limit = direct_limit});
  const Hypergradient hypergradient = exact.estimate(oracle, {.x = x, .inner = at_solution});
  if (hypergradient.status == Status::not_finite || hypergradient.status == Status::breakdown) {
    result.why = fmt::format("the inner Hessian at the solution cannot be inverted ({})",
                             name_of(hypergradient.status));
    return result;
  }
  result.value = hypergradient.value;
  return result;
}

ImplicitReference implicit_reference_at(Oracle& oracle, const Tensor& x, const Tensor& w,
                                        const CurvatureOptions& curvature) {
  Trajectory here;
  here.optimizer = make_inner_optimizer({});
  here.final = here.optimizer->start(w);
  LinearResult linear;
  const Hypergradient hypergradient = implicit_hypergradient(
      oracle, {.x = x, .inner = here}, curvature, [&](CurvatureProducts& products, const Tensor& p) {
        if (p.numel() <= direct_limit) {
          linear = direct_solve(products.matrix(), p, {.limit = direct_limit});
        } else {
          KrylovSolveOptions options;
          options.max_iterations = most_products;
          options.relative_tolerance = p.scalar_type() == at::kDouble ? 1e-11 : 1e-5;
          linear = minres(products.matrix(), p, options);
        }
        return linear;
      });
  ImplicitReference result;
  result.at_iterate = true;
  const bool solved = linear.status == Status::converged || linear.status == Status::negative_curvature;
  if (!solved) {
    result.why = fmt::format(
        "the curvature at the final iterate could not be inverted: {} after {} products, relative residual "
        "{:.2g}",
        name_of(linear.status), linear.products, linear.relative_residual);
    return result;
  }
  result.value = hypergradient.value;
  return result;
}

Reference unrolled_reference(const Problem& problem, const Tensor& x, const Tensor& start,
                             const InnerOptions& options, const InnerBatches& batches, const Batch& outer) {
  const at::AutoGradMode enable(true);
  const Oracle oracle(problem);
  const auto optimizer = make_inner_optimizer(options);
  const Tensor x_leaf = x.detach().requires_grad_(true);
  const Tensor learned_start = problem.inner_start(x_leaf);
  const Tensor learned_rate = oracle.inner_rate(x_leaf);
  // A leaf of its own where the start is fixed, so that every step can be differentiated in w.
  InnerState state =
      optimizer->start(learned_start.defined() ? learned_start : start.detach().requires_grad_(true));
  for (int64_t t = 0; t < options.steps; ++t) {
    const Batch batch = batches ? batches(t) : Batch{};
    const Tensor loss = problem.inner_loss(state.w, x_leaf, batch);
    const Tensor gradient = grad({loss}, {state.w}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    const double factor = options.schedule.factor(t);
    const StepRate rate =
        learned_rate.defined() ? StepRate{0, learned_rate * factor} : StepRate{options.rate * factor, {}};
    state = optimizer->step(state, gradient, rate);
  }
  const Tensor loss = problem.outer_loss(state.w, x_leaf, outer);
  Reference result;
  if (loss.requires_grad()) result.value = grad({loss}, {x_leaf}, {}, false, false, /*allow_unused=*/true)[0];
  if (!result.value.defined()) result.value = at::zeros_like(x);
  result.value = result.value.detach();
  return result;
}

}  // namespace bilevel
