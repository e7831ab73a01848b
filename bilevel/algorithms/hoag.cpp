#include "bilevel/algorithms/hoag.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/core/errors.h"

namespace bilevel {
namespace {

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
  require_rate("hoag", "first tolerance", first);
  require_rate("hoag", "least tolerance", least);
  if (decay != "exponential" && decay != "quadratic" && decay != "cubic") {
    throw std::invalid_argument(
        fmt::format("hoag: tolerance decay '{}' must be exponential, quadratic or cubic", decay));
  }
  if (!(factor > 0 && factor < 1)) {
    throw std::invalid_argument(fmt::format("hoag: tolerance factor = {} must be in (0, 1)", factor));
  }
}

void HoagOptions::validate() const {
  inner.validate();
  require_count("hoag", "linear_steps", linear_steps, 1);
  tolerance.validate();
  if (!(increase >= 1) || !std::isfinite(increase)) {
    throw std::invalid_argument(fmt::format("hoag: increase = {} must be finite and at least 1", increase));
  }
  for (const auto& [option, value] : {std::pair{"decrease", decrease}, std::pair{"sufficient", sufficient}}) {
    if (!(value > 0 && value < 1)) {
      throw std::invalid_argument(fmt::format("hoag: {} = {} must be in (0, 1)", option, value));
    }
  }
  curvature.validate();
}

Hoag::Hoag(const HoagOptions& options)
    : Algorithm(options.outer), options_(options), optimizer_(make_inner_optimizer(options.inner)) {
  options_.validate();
}

void Hoag::begin(AlgorithmState& state) const {
  state.inner = optimizer_->start(state.inner.w);
  state.numbers["step_factor"] = 1;
  state.numbers["rejections"] = 0;
}

double Hoag::solve_inner(Oracle& oracle, AlgorithmState& state, const Batch& batch, double tolerance) const {
  const int64_t before = state.inner.step;
  double norm = 0;
  for (int64_t t = 0;; ++t) {
    const Tensor gradient = oracle.inner_gradient(state.inner.w, state.x, batch);
    norm = gradient.norm().item<double>();
    if (!std::isfinite(norm)) {
      throw NotFiniteError(
          fmt::format("hoag: the inner gradient is {} after {} steps of iteration {}. Lower "
                      "the inner rate.",
                      norm, t, state.iteration + 1));
    }
    if (norm <= tolerance || t == options_.inner.steps) break;
    const double rate = options_.inner.rate * options_.inner.schedule.factor(state.inner.step);
    state.inner = optimizer_->step(state.inner, gradient, {rate, {}});
  }
  state.numbers["inner_steps"] = static_cast<double>(state.inner.step - before);
  state.numbers["inner_gradient_norm"] = norm;
  return norm;
}

bool Hoag::accept(AlgorithmState& state, const OuterGradients& outer_at, double tolerance) const {
  const double loss = outer_at.loss.item<double>(), last_loss = state.numbers.at("loss");
  // To first order: the slope along the step that was really taken, after projections.
  const double predicted =
      at::dot(state.memory.at("direction"), state.memory.at("x") - state.x).item<double>();
  // At the optimum the loss stands still, and that is no reason for ever longer steps.
  const double rounding = 64 * rounding_of(state.x) * std::abs(last_loss);
  if (predicted > rounding && loss <= last_loss - options_.sufficient * predicted) {
    state.numbers["step_factor"] *= options_.increase;
    return true;
  }
  // Each w is known to its tolerance, and f as far as grad_w f carries that. Not to what a limit on the inner
  // steps left: that grows with a step that is too long, and would excuse it.
  const double unknown =
      outer_at.w.norm().item<double>() * (tolerance + state.numbers.at("last_tolerance")) + rounding;
  return loss <= last_loss + unknown;
}

// The next iteration solves again where the step began, to a smaller tolerance, so that a loss that was too
// low by the old one is not compared with for ever, and takes a shorter step.
IterationSummary Hoag::go_back(AlgorithmState& state, const Tensor& loss) const {
  const Tensor direction = state.memory.at("direction");
  state.numbers["step_factor"] *= options_.decrease;
  ++state.numbers["rejections"];
  state.x = state.memory.at("x");
  state.inner = optimizer_->start(state.memory.at("w"));  // momenta of the inner optimiser led elsewhere
  state.memory.clear();
  return {.direction = direction, .outer_loss = loss, .status = Status::ok};
}

IterationSummary Hoag::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const double tolerance = options_.tolerance.at(state.iteration);
  state.numbers["tolerance"] = tolerance;
  Trajectory point;
  HypergradientRequest request{.x = state.x, .inner = point};
  request.outer = streams.outer("sample");
  request.cross = streams.inner("sample");
  request.hessian = {request.cross};

  const bool can_go_back = options_.adaptive && state.memory.contains("x");
  double gradient_norm = 0;
  OuterGradients outer_at;
  try {
    gradient_norm = solve_inner(oracle, state, request.cross, tolerance);
    outer_at = oracle.outer_gradients(state.inner.w, state.x, request.outer);
  } catch (const NotFiniteError&) {
    if (!can_go_back) throw;
    return go_back(state, {});
  }
  if (can_go_back && !accept(state, outer_at, tolerance)) return go_back(state, outer_at.loss);

  point.final = state.inner;
  CurvatureProducts products(oracle, request, options_.curvature);
  const double p_norm = outer_at.w.norm().item<double>();
  KrylovSolveOptions cg;
  cg.max_iterations = options_.linear_steps;
  cg.relative_tolerance = p_norm > 0 ? tolerance / p_norm : 0;
  cg.warm_start = state.v;
  const LinearResult linear = conjugate_gradient(products.matrix(), outer_at.w, cg);
  state.v = linear.solution;
  state.numbers["residual"] = linear.residual();
  const Tensor direction = outer_at.x - products.cross(state.v);

  const Tensor proposed = outer().step(state.x, direction, state.outer);
  if (options_.adaptive) {
    state.memory["x"] = state.x;
    state.memory["w"] = state.inner.w;
    state.memory["direction"] = direction;
    state.numbers["loss"] = outer_at.loss.item<double>();
    state.numbers["last_tolerance"] = tolerance;
    state.x = at::lerp(state.x, proposed, state.numbers.at("step_factor"));
  } else {
    state.x = proposed;
  }
  const Status status = gradient_norm > tolerance && linear.status == Status::converged
                            ? Status::max_iterations
                            : linear.status;
  return {.direction = direction, .outer_loss = outer_at.loss, .status = status};
}

}  // namespace bilevel
