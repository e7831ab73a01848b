#include "bilevel/check/references.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "bilevel/core/linear_solve.h"
#include "bilevel/hypergradients/exact.h"

namespace bilevel {
namespace {

using torch::autograd::grad;

constexpr int64_t direct_limit = 1000;
constexpr int64_t most_products = 1000;  // of MINRES above that

}  // namespace

ImplicitReference implicit_reference(Oracle& oracle, const Tensor& x, const Tensor& w,
                                     const CurvatureOptions& curvature, const InnerSolveOptions& solve) {
  ImplicitReference result;
  result.inner = solve_inner(oracle, x, w, solve);
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
