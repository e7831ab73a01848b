#include "bilevel/check/bounds.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bilevel {
namespace {

// The largest singular value of C at w, from the largest eigenvalue of C C' or C'C, whichever is smaller.
double cross_operator_norm(Oracle& oracle, const Tensor& w, const Tensor& x) {
  if (!oracle.problem().inner_loss_uses_outer()) return 0;
  const auto linear = oracle.linearize(w, x, Batch{});
  const bool by_outer = x.numel() <= w.numel();
  const MatrixProduct square = [&](const Tensor& v) {
    return by_outer ? linear->cross(linear->cross_transposed(v)) : linear->cross_transposed(linear->cross(v));
  };
  const Spectrum spectrum = extreme_eigenvalues(square, by_outer ? x.numel() : w.numel(), w.options());
  return std::sqrt(std::max(spectrum.largest, 0.0));
}

}  // namespace

BoundInputs bound_inputs(Oracle& oracle, const Tensor& x, const Trajectory& trajectory,
                         const Spectrum& spectrum, const CurvatureOptions& curvature, double linear_rate) {
  BoundInputs inputs;
  inputs.mu = spectrum.smallest;
  inputs.smoothness = spectrum.largest;
  inputs.hessian = curvature.kind == "hessian" && curvature.damping == 0;
  inputs.rate = trajectory.last_rate();
  inputs.linear_rate = linear_rate > 0 ? linear_rate : inputs.rate;
  inputs.p_norm = oracle.outer_gradients(trajectory.final.w, x, Batch{}).w.norm().item<double>();
  inputs.cross_norm = cross_operator_norm(oracle, trajectory.final.w, x);
  inputs.largest_cross_norm = inputs.cross_norm;
  inputs.steps = trajectory.steps();
  if (!inputs.hessian) return inputs;  // truncated alone asks for more, and has no bound then
  const int64_t stride = std::max<int64_t>(static_cast<int64_t>(trajectory.kept.size()) / 20, 1);
  int64_t position = 0;
  for (const auto& [t, state] : trajectory.kept) {
    if (position++ % stride != 0) continue;
    inputs.largest_cross_norm = std::max(inputs.largest_cross_norm, cross_operator_norm(oracle, state.w, x));
  }
  return inputs;
}

double theory_of_terms(const std::string& method, int64_t terms, const BoundInputs& in) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  if (in.mu <= 0) return none;
  const double k = static_cast<double>(terms);
  const bool is_series = method == "neumann" || method == "fixed-point";
  const double rate = is_series ? in.linear_rate : in.rate;
  const double factor = 1 - rate * in.mu;
  const bool small_rate = rate * in.smoothness <= 1 + 1e-9;
  if (is_series) {
    if (!small_rate) return none;
    const double summands = method == "neumann" ? k + 1 : k;  // fixed-point(S) = neumann(S - 1)
    return in.cross_norm * in.p_norm / in.mu * std::pow(factor, summands);
  }
  if (method == "truncated") {
    if (!small_rate || !in.hessian) return none;
    if (terms >= in.steps) return 0;
    const double b_norm = in.rate * in.largest_cross_norm;
    return std::pow(factor, k) / (in.rate * in.mu) * in.p_norm * b_norm;
  }
  if (method == "cg") {
    const double root = std::sqrt(in.smoothness / in.mu);
    return in.cross_norm * in.p_norm / in.mu * 2 * root * std::pow((root - 1) / (root + 1), k);
  }
  return none;
}

}  // namespace bilevel
