// Where a paper proves a rate, the measured decrease on the known quadratic is at least that fast.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/algorithms/known_optima.h"

namespace bilevel::test {
namespace {

// |grad Phi|^2 before every iteration of a run.
std::vector<double> squares_along(const Known& known, const Algorithm& algorithm, int64_t iterations,
                                  StreamOptions batches = {}) {
  Oracle oracle(*known.problem);
  Streams streams(7, 12, 12, batches);
  AlgorithmState state = algorithm.init(oracle, known.x, known.w);
  std::vector<double> squares;
  for (int64_t k = 0; k < iterations; ++k) {
    squares.push_back(std::pow(known.gradient_norm(state.x), 2));
    algorithm.step(oracle, state, streams);
  }
  return squares;
}
double mean(const std::vector<double>& values, size_t first, size_t last) {
  double sum = 0;
  for (size_t i = first; i < last; ++i) sum += values[i];
  return sum / static_cast<double>(last - first);
}

// Ji, Yang and Liang 2021: with inner solves and series long enough, AID-BiO, ITD-BiO and stocBiO without
// noise contract like gradient descent on Phi, (1 - mu / L) a step at the rate 1 / L.
TEST(Rates, aid_itd_and_stocbio_converge_linearly_on_a_strongly_convex_outer_problem) {
  const Known known = known_quadratic();
  const Tensor eigenvalues = at::linalg_eigvalsh(outer_curvature(known.hypergradient, known.x, 1.0));
  const double contraction = 1 - eigenvalues.min().item<double>() / eigenvalues.max().item<double>();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.steps = 150;
  settings.hypergradient.terms = 150;
  constexpr int64_t iterations = 150;
  for (const std::string name : {"aid-cg", "itd", "stocbio"}) {
    const std::vector<double> squares = squares_along(known, *make_algorithm(name, settings), iterations);
    for (const size_t k : {10U, 50U, 100U, 149U}) {
      EXPECT_LT(std::sqrt(squares[k] / squares[0]), 1.5 * std::pow(contraction, static_cast<double>(k)))
          << name << " after " << k << ", contraction " << contraction;
    }
  }
}

// With noise stocBiO ends in a ball around the optimum that shrinks with the variance of its samples. The
// runs begin at the optimum, so that nothing but the ball is seen.
TEST(Rates, stocbio_stays_within_the_noise_of_its_batches) {
  Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate *= 0.2;
  settings.linear_rate = settings.inner.rate;
  settings.outer.rate *= 0.2;
  const auto algorithm = make_algorithm("stocbio", settings);
  const double at_start = std::pow(known.gradient_norm(known.x), 2);
  const Tensor curvature = outer_curvature(known.hypergradient, known.x, 1.0);
  known.x = known.x - solve(curvature, known.hypergradient(known.x));
  known.w = known.solution(known.x);
  ASSERT_LT(std::pow(known.gradient_norm(known.x), 2), 1e-16 * at_start);
  std::vector<double> balls;
  for (const int64_t batch : {4, 8, 11}) {
    balls.push_back(mean(squares_along(known, *algorithm, 300, {batch, batch}), 20, 300) / at_start);
  }
  // The variance of a mean of b of 12 without replacement is (1/b - 1/12) of one example's: 1 : 1/4 : 1/22.
  EXPECT_LT(balls[0], 0.3);
  EXPECT_LT(balls[1], 0.5 * balls[0]);
  EXPECT_LT(balls[2], 0.5 * balls[1]);
  EXPECT_GT(balls[2], 0);
}

// Li, Gu and Huang 2022, Theorem 5 (17 in its appendix): the average of |grad Phi|^2 over K iterations is
// O(ln K / sqrt K).
TEST(Rates, fsla_falls_like_log_k_over_sqrt_k_with_noise) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate *= 0.3;
  settings.outer.rate *= 0.3;
  const auto fsla = make_algorithm("fsla", settings);
  const std::vector<double> squares = squares_along(known, *fsla, 3200, {8, 8});
  double last = std::numeric_limits<double>::infinity();
  for (const size_t k : {50U, 200U, 800U, 3200U}) {
    const auto steps = static_cast<double>(k);
    const double constant = mean(squares, 0, k) * std::sqrt(steps) / std::log(steps);
    EXPECT_LT(constant, last) << k;
    last = constant;
  }
}

}  // namespace
}  // namespace bilevel::test
