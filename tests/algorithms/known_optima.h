#pragma once
// Two problems whose best x is known, small and well conditioned, so that every rule can be seen to get
// there: a quadratic, whose best x solves a linear system, and ridge, whose hypergradient has a closed form.
// The seeds are chosen so that the best x is finite (ridge often wants a regulariser of zero or infinity) and
// the outer condition number below 100.

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/problems/quadratic.h"
#include "bilevel/problems/ridge.h"
#include "tests/support.h"

namespace bilevel::test {

// The curvature of x -> f(x, w*(x)) by differences of its gradient: exact to rounding on a quadratic.
inline Tensor outer_curvature(const std::function<Tensor(const Tensor&)>& gradient, const Tensor& x,
                              double step) {
  std::vector<Tensor> columns;
  for (int64_t i = 0; i < x.numel(); ++i) {
    Tensor above = x.clone(), below = x.clone();
    above[i] += step;
    below[i] -= step;
    columns.push_back((gradient(above) - gradient(below)) / (2 * step));
  }
  const Tensor matrix = at::stack(columns, 1);
  return (matrix + matrix.t()) / 2;
}

// A problem with the rates that its curvatures ask for, and the gradient of its value function.
struct Known {
  std::unique_ptr<Problem> problem;
  std::function<Tensor(const Tensor&)> hypergradient;  // of f(x, w*(x)), in closed form
  std::function<Tensor(const Tensor&)> solution;       // w*(x)
  double inner_rate = 0;                               // 1 / L of the inner problem
  double outer_rate = 0;                               // 1 / L of the outer one, where x starts
  Tensor x, w;                                         // where to start
  double gradient_norm(const Tensor& at) const { return length(hypergradient(at)); }
};

inline Known known_quadratic() {
  auto problem = std::make_unique<Quadratic>(QuadraticOptions{.dimension = 3, .samples = 12, .seed = 11});
  const Quadratic* p = problem.get();
  Known known;
  known.hypergradient = [p](const Tensor& x) { return p->hypergradient(x); };
  known.solution = [p](const Tensor& x) { return p->solution(x); };
  known.inner_rate =
      1 / at::linalg_eigvalsh(2 * p->inner_matrix().t().mm(p->inner_matrix())).max().item<double>();
  known.x = p->initial_outer(0);
  known.w = p->initial_inner(0);
  known.outer_rate =
      1 / at::linalg_eigvalsh(outer_curvature(known.hypergradient, known.x, 1.0)).max().item<double>();
  known.problem = std::move(problem);
  return known;
}

inline Known known_ridge() {
  auto problem = std::make_unique<Ridge>(RidgeOptions{
      .features = 3, .samples = 12, .valid_samples = 12, .initial_log = -1, .noise = 2, .seed = 25});
  const Ridge* p = problem.get();
  Known known;
  known.hypergradient = [p](const Tensor& x) { return p->hypergradient(x); };
  known.solution = [p](const Tensor& x) { return p->solution(x); };
  const Tensor gram = p->matrix().t().mm(p->matrix()) / 12.0;
  known.x = p->initial_outer(0);
  known.w = p->initial_inner(0);
  known.inner_rate = 1 / (at::linalg_eigvalsh(gram).max().item<double>() + 1.0);
  known.outer_rate =
      1 / at::linalg_eigvalsh(outer_curvature(known.hypergradient, known.x, 1e-4)).abs().max().item<double>();
  known.problem = std::move(problem);
  return known;
}

inline AlgorithmSettings settings_for(const Known& known) {
  AlgorithmSettings settings;
  settings.inner.rate = known.inner_rate;
  settings.inner.steps = 20;
  settings.outer.rate = known.outer_rate;
  settings.hypergradient.terms = 20;
  settings.hypergradient.truncate = 20;
  return settings;
}

inline SolveSummary solve_from(const Known& known, const Algorithm& algorithm, const SolveOptions& options) {
  return solve(*known.problem, algorithm, options, {}, known.x, known.w);
}

}  // namespace bilevel::test
