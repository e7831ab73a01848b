#include "bilevel/check/value_function.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/require.h"
#include "bilevel/core/solve_inner.h"

namespace bilevel {
namespace {

// Up to here a Hessian is assembled in less time than conjugate gradients take on a badly conditioned one.
constexpr int64_t factorised_up_to = 200;

double norm_number(const Tensor& t) { return t.norm().item<double>(); }

}  // namespace

void ValueOptions::validate() const {
  if (!(relative_tolerance > 0) || !std::isfinite(relative_tolerance)) {
    throw std::invalid_argument(fmt::format(
        "value function: relative_tolerance = {}: must be finite and above 0", relative_tolerance));
  }
  require_at_least("value function: products", products, 1);
}

ValueFunction::ValueFunction(const Problem& problem, const ValueOptions& options)
    : options_(options), oracle_(problem), first_(problem.initial_inner(0)) {
  options_.validate();
}

bool ValueFunction::solve(const Tensor& x, const Tensor& w) {
  const auto gradient_norm = [&](const Tensor& at) { return norm_number(oracle_.inner_gradient(at, x, {})); };
  const double scale = gradient_norm(first_);
  Tensor start = first_;
  double nearest = std::isfinite(scale) ? scale : std::numeric_limits<double>::infinity();
  for (const Tensor& other : {w, solution_}) {
    if (!other.defined()) continue;
    if (const double norm = gradient_norm(other); norm < nearest) {
      nearest = norm;
      start = other;
    }
  }
  const SolvedInner solved = solve_inner(oracle_, x, start,
                                         {.products = options_.products,
                                          .relative_tolerance = options_.relative_tolerance,
                                          .gradient_scale = std::isfinite(scale) ? scale : 0,
                                          .direct_limit = factorised_up_to});
  if (!solved.solved) {
    why_ = fmt::format("the inner problem was not solved: {} after {} Hessian products, |grad_w g| = {:.3g}",
                       name_of(solved.status), solved.products, solved.gradient_norm);
    return false;
  }
  solution_ = solved.w;
  return true;
}

std::optional<double> ValueFunction::value(const Tensor& x, const Tensor& w) {
  if (!solve(x, w)) return std::nullopt;
  const double value = oracle_.outer_loss(solution_, x).item<double>();
  if (std::isfinite(value)) return value;
  why_ = fmt::format("f(x, w*(x)) is {}", value);
  return std::nullopt;
}

std::optional<ValuePoint> ValueFunction::point(const Tensor& x, const Tensor& w) {
  const auto value = this->value(x, w);
  if (!value) return std::nullopt;
  const OuterGradients outer = oracle_.outer_gradients(solution_, x, {});
  const auto inner = oracle_.linearize(solution_, x, {});
  const MatrixProduct hessian = [&](const Tensor& v) { return inner->hessian(v); };
  LinearResult linear;
  if (outer.w.numel() <= factorised_up_to) {
    linear = direct_solve(hessian, outer.w, {.limit = factorised_up_to});
  } else {
    KrylovSolveOptions cg;
    cg.max_iterations = options_.products;
    cg.relative_tolerance = outer.w.scalar_type() == at::kDouble ? options_.relative_tolerance : 1e-4;
    cg.warm_start = linear_solution_;
    linear = conjugate_gradient(hessian, outer.w, cg);
  }
  if (linear.status != Status::converged) {
    why_ = fmt::format("the inner Hessian could not be inverted at w*(x): {} after {} products",
                       name_of(linear.status), linear.products);
    return std::nullopt;
  }
  linear_solution_ = linear.solution;
  Tensor gradient = outer.x;
  if (oracle_.problem().inner_loss_uses_outer()) gradient = gradient - inner->cross(linear.solution);
  const Tensor stepped = x - gradient;
  Tensor inside = stepped.clone();
  oracle_.problem().project_outer_(inside);
  ValuePoint result{.value = *value,
                    .gradient_norm = norm_number(inside.equal(stepped) ? gradient : x - inside)};
  if (std::isfinite(result.gradient_norm)) return result;
  why_ = fmt::format("the gradient of f(x, w*(x)) has norm {}", result.gradient_norm);
  return std::nullopt;
}

}  // namespace bilevel
