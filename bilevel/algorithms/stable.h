#pragma once
// STABLE (Chen, Sun, Xiao and Yin 2022): one step of w and one of x at the same pace, where w also takes the
// step that x's move asks of w*(x), and the matrices of the implicit formula follow along the run by
// recursive momentum,
//
//     H <- P[ h_ww(now) + (1 - a) (H - h_ww(before)) ],    C <- h_xw(now) + (1 - a) (C - h_xw(before)),
//     x+ = x - rate (grad_x f - C H^-1 grad_w f),    w+ = w - inner_rate grad_w g - H^-1 C' (x+ - x)
//
// with both evaluations of a matrix on one new sample. P projects onto the matrices whose eigenvalues are at
// least mu, and stands inside the recursion: the H that the next iteration goes on from is the projected one.
// (The paper also projects C, onto |C| at most a constant that is not known in practice; that is left out.)
// H and C are dense, and an iteration takes 2 n products of each kind for n inner variables, so a large n is
// refused.

#include <cstdint>
#include <string_view>
#include <utility>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct StableOptions {
  static constexpr int64_t most_variables = 2000;  // of w: H alone has 32 MB in double then
  double inner_rate = 0.1;
  double averaging = 0.1;  // a, in (0, 1]: the newest sample's part; 1 keeps nothing of earlier matrices
  // mu of the projection; 0 = a thousandth of H's largest eigenvalue, which keeps H invertible where the
  // noise of a small batch would not.
  double strong_convexity = 0;
  CurvatureOptions curvature = {};
  OuterOptions outer = {};
  void validate() const;
  static const Fields<StableOptions>& fields();
};

class Stable : public Algorithm {
 public:
  explicit Stable(const StableOptions& options);
  std::string_view name() const override { return "stable"; }
  // w has taken the step that x's move asks of w*(x).
  InnerSolution inner_solution(Oracle& /*oracle*/, const AlgorithmState& state) const override {
    return {.w = state.inner.w, .x = state.x};
  }

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;
  // h_ww and h_xw as matrices: n x n and (size of x) x n.
  std::pair<Tensor, Tensor> matrices(Oracle& oracle, const Tensor& w, const Tensor& x,
                                     const Batch& batch) const;
  // By its eigenvectors, with the eigenvalues raised to mu.
  struct Projected {
    Tensor values, vectors;
    Tensor matrix() const;
    Tensor solve(const Tensor& b) const;
  };
  Projected project(const Tensor& hessian) const;

  StableOptions options_;
};

}  // namespace bilevel
