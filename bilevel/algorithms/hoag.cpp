#include "bilevel/algorithms/hoag.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/errors.h"
#include "bilevel/core/lbfgs.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

constexpr double least_of_floats = 1e-5;  // rounding ends there, and steps beyond it are for nothing

double rounding_of(const Tensor& t) {
  return t.scalar_type() == at::kFloat ? std::numeric_limits<float>::epsilon()
                                       : std::numeric_limits<double>::epsilon();
}

}  // namespace

double HoagTolerance::at(int64_t iteration) const {
  const auto k = static_cast<double>(iteration);
  const double part =
      decay == "exponential" ? std::pow(factor, k) : std::pow(k + 1, decay == "cubic" ? -3 : -2);
  return std::max(first * part, least);
}

void HoagTolerance::validate() const {
  require_positive("hoag", "first tolerance", first);
  require_positive("hoag", "least tolerance", least);
  require_at_least("hoag", "most_steps", most_steps, 1);
  if (decay != "exponential" && decay != "quadratic" && decay != "cubic") {
    throw std::invalid_argument(
        fmt::format("hoag: tolerance decay = {}: must be exponential, quadratic or cubic", decay));
  }
  require_between_0_and_1("hoag: tolerance factor", factor);
}

void HoagOptions::validate() const {
  require_positive("hoag", "inner_rate", inner_rate);
  tolerance.validate();
  require(increase >= 1 && std::isfinite(increase), "hoag: increase", increase, "finite and at least 1");
  for (const auto& [option, value] : {std::pair{"decrease", decrease}, std::pair{"sufficient", sufficient}}) {
    require_between_0_and_1(fmt::format("hoag: {}", option), value);
  }
  curvature.validate();
}

const Fields<HoagOptions>& HoagOptions::fields() {
  static const Fields<HoagOptions> table = [] {
    using O = HoagOptions;
    Fields<O> f;
    add_inner_rate(
        f, [](O & o) -> auto& { return o.inner_rate; });
    f.add(
         "first_tolerance", [](O & o) -> auto& { return o.tolerance.first; },
         "eps_0: tolerance of the first solves")
        .in(above(0));
    f.add(
         "tolerance_decay", [](O & o) -> auto& { return o.tolerance.decay; }, "how the tolerance falls")
        .one_of({"exponential", "quadratic", "cubic"});
    f.add(
         "tolerance_factor", [](O & o) -> auto& { return o.tolerance.factor; },
         "factor of the exponential decay")
        .in(between_0_and_1());
    f.add(
        "adaptive_step", [](O & o) -> auto& { return o.adaptive; },
        "adapt the outer rate as HOAG does; false = take the outer optimiser's steps as they are");
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Hoag::Hoag(const HoagOptions& options) : Algorithm(options.outer), options_(options) { options_.validate(); }

void Hoag::begin(AlgorithmState& state) const {
  state.numbers["step_factor"] = 1;
  state.numbers["rejections"] = 0;
}

Status Hoag::solve_inner(Oracle& oracle, AlgorithmState& state, const Batch& batch, double tolerance) const {
  LbfgsOptions lbfgs;
  lbfgs.tolerance = tolerance;
  lbfgs.most_gradients = options_.tolerance.most_steps + 1;
  lbfgs.first_step = options_.inner_rate;
  const LbfgsResult solved = minimize(
      [&](const Tensor& w) { return oracle.inner_gradient(w, state.x, batch); }, state.inner.w, lbfgs);
  if (solved.status == Status::not_finite) {
    throw NotFiniteError(fmt::format("hoag: the inner gradient is {} at the first w of iteration {}.",
                                     solved.gradient_norm, state.iteration + 1));
  }
  state.inner.w = solved.w;
  state.inner.step += solved.gradients - 1;
  state.numbers["inner_steps"] = static_cast<double>(solved.gradients - 1);
  state.numbers["inner_gradient_norm"] = solved.gradient_norm;
  // Where rounding ends it near the tolerance the problem is as solved as it can be.
  const bool rounded = solved.status == Status::breakdown && solved.gradient_norm <= 100 * tolerance;
  return rounded ? Status::converged : solved.status;
}

bool Hoag::accept(AlgorithmState& state, const OuterGradients& outer_at, double tolerance) const {
  const double loss = outer_at.loss.item<double>(), last_loss = state.numbers.at("loss");
  if (!std::isfinite(loss)) return false;
  // To first order: the slope along the step that was really taken, after projections.
  const double predicted =
      at::dot(state.memory.at("direction"), state.memory.at("x") - state.x).item<double>();
  // At the optimum the loss stands still, and that is no reason for ever longer steps.
  const double rounding = 64 * rounding_of(state.x) * std::abs(last_loss);
  if (predicted > rounding && loss <= last_loss - options_.sufficient * predicted) {
    state.numbers["step_factor"] *= options_.increase;
    return true;
  }
  const double unknown =
      state.v.norm().item<double>() * (tolerance + state.numbers.at("last_tolerance")) + rounding;
  return loss <= last_loss + unknown;
}

IterationSummary Hoag::take_back(AlgorithmState& state, const Tensor& loss) const {
  double& factor = state.numbers["step_factor"];
  factor *= options_.decrease;
  ++state.numbers["rejections"];
  // v and the outer optimiser's moments have not moved since: they are those of the step that is shortened.
  state.inner.w = state.memory.at("w");
  state.x = at::lerp(state.memory.at("x"), state.memory.at("proposed"), factor);
  return {.direction = state.memory.at("direction"), .outer_loss = loss, .status = Status::ok};
}

InnerSolution Hoag::inner_solution(Oracle& /*oracle*/, const AlgorithmState& state) const {
  const auto x = state.memory.find("x");  // only where steps can be taken back
  return {.w = state.inner.w, .x = x == state.memory.end() ? Tensor() : x->second};
}

IterationSummary Hoag::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const double tolerance = std::max(options_.tolerance.at(state.iteration),
                                    state.x.scalar_type() == at::kFloat ? least_of_floats : 0.0);
  state.numbers["tolerance"] = tolerance;
  Trajectory point;
  HypergradientRequest request{.x = state.x, .inner = point};
  request.outer = streams.outer("sample");
  request.cross = streams.inner("sample");
  request.hessian = {request.cross};

  const bool can_go_back = options_.adaptive && state.memory.contains("x");
  Status inner_status = Status::not_run;
  OuterGradients outer_at;
  try {
    inner_status = solve_inner(oracle, state, request.cross, tolerance);
    outer_at = oracle.outer_gradients(state.inner.w, state.x, request.outer);
  } catch (const NotFiniteError&) {
    if (!can_go_back) throw;
    return take_back(state, {});
  }
  // Far from the solution of an inner problem that is too badly conditioned to be solved, nothing can be
  // compared.
  if (can_go_back && inner_status == Status::breakdown) return take_back(state, outer_at.loss);
  if (can_go_back && !accept(state, outer_at, tolerance)) return take_back(state, outer_at.loss);

  point.final = state.inner;
  CurvatureProducts products(oracle, request, options_.curvature);
  const double p_norm = outer_at.w.norm().item<double>();
  KrylovSolveOptions cg;
  cg.max_iterations = options_.tolerance.most_steps;
  cg.relative_tolerance = p_norm > 0 ? tolerance / p_norm : 0;
  cg.warm_start = state.v;
  const LinearResult linear = conjugate_gradient(products.matrix(), outer_at.w, cg);
  state.v = linear.solution;
  state.numbers["residual"] = linear.residual();
  const Tensor cross = products.cross(state.v);  // undefined where g has no x, or a difference along v = 0
  const Tensor direction = cross.defined() ? outer_at.x - cross : outer_at.x;

  const Tensor proposed = outer_step(oracle, state.x, direction, state.outer);
  if (options_.adaptive) {
    state.memory["x"] = state.x;
    state.memory["w"] = state.inner.w;
    state.memory["proposed"] = proposed;
    state.memory["direction"] = direction;
    state.numbers["loss"] = outer_at.loss.item<double>();
    state.numbers["last_tolerance"] = tolerance;
    state.x = at::lerp(state.x, proposed, state.numbers.at("step_factor"));
  } else {
    state.x = proposed;
  }
  const Status status = linear.status == Status::converged ? inner_status : linear.status;
  return {.direction = direction, .outer_loss = outer_at.loss, .status = status, .needs_positive = true};
}

}  // namespace bilevel
