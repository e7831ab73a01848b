#include "bilevel/check/bounds.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

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

TheoryInputs theory_inputs(Oracle& oracle, const Tensor& x, const Trajectory& trajectory,
                           const Spectrum& spectrum, const CurvatureOptions& curvature) {
  TheoryInputs inputs;
  inputs.mu = spectrum.smallest;
  inputs.smoothness = spectrum.largest;
  inputs.hessian = curvature.kind == "hessian" && curvature.damping == 0;
  inputs.rate = trajectory.last_rate();
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

}  // namespace bilevel
