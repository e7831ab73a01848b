// The ten-line example: tune one regulariser per weight of a tiny least-squares fit so that it predicts well
// on other data. Two losses, one estimator, plain gradient steps on x.

#include <bilevel/bilevel.h>

#include <iostream>

int main() {
  using at::Tensor;
  const Tensor a = at::arange(12, at::kDouble).sin().reshape({6, 2}), b = a.select(1, 0) * 2.0;
  bilevel::FunctionProblem problem(
      [&](const Tensor& w, const Tensor& x, const bilevel::Batch&) {  // inner: fit, with regulariser exp(x)
        return (a.slice(0, 0, 3).mv(w) - b.slice(0, 0, 3)).square().mean() + (x.exp() * w * w).sum();
      },
      [&](const Tensor& w, const Tensor&, const bilevel::Batch&) {  // outer: predict the other half
        return (a.slice(0, 3).mv(w) - b.slice(0, 3)).square().mean();
      },
      at::zeros({2}, at::kDouble), at::zeros({2}, at::kDouble));

  bilevel::Oracle oracle(problem);
  Tensor x = problem.initial_outer(0);
  for (int step = 0; step < 100; ++step) {
    const auto [inner, hypergradient] = bilevel::hypergradient_at(
        oracle, x, problem.initial_inner(0), {.steps = 100, .rate = 0.1}, bilevel::Truncated({.steps = 20}));
    if (step % 20 == 0) std::cout << "outer loss " << hypergradient.outer_loss.item<double>() << "\n";
    x = x - 1.0 * hypergradient.value;
  }
  std::cout << "regularisers " << x.exp()[0].item<double>() << " " << x.exp()[1].item<double>() << " after "
            << oracle.counts().hessian << " Hessian products\n";
}
