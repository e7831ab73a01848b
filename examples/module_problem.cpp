// A torch::nn network as a bilevel problem: the weights fit noisy data, and one weight decay per layer is
// tuned on data without noise.

#include <bilevel/bilevel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <iostream>

int main() {
  using namespace bilevel;
  at::manual_seed(0);
  const Tensor train = at::linspace(-1, 1, 20).unsqueeze(1), valid = at::linspace(-0.9, 0.9, 50).unsqueeze(1);
  const Tensor noisy = (3 * train).sin() + 0.5 * at::randn({20, 1}), clean = (3 * valid).sin();
  torch::nn::Sequential net(torch::nn::Linear(1, 20), torch::nn::Tanh(), torch::nn::Linear(20, 1));
  const ModuleProblem problem(
      net,
      [&](torch::nn::Sequential& n, const Tensor& x, const Batch&) {  // inner: fit, with exp(x) as decays
        const auto p = n->parameters();  // weight and bias of the first layer, of the last
        const Tensor first = p[0].square().sum() + p[1].square().sum();
        const Tensor last = p[2].square().sum() + p[3].square().sum();
        return (n->forward(train) - noisy).square().mean() + x[0].exp() * first + x[1].exp() * last;
      },
      [&](torch::nn::Sequential& n, const Tensor&, const Batch&) {  // outer: predict the clean data
        return (n->forward(valid) - clean).square().mean();
      },
      /*initial_outer=*/at::full({2}, -8.0));

  const DoubleLoop algorithm({.inner = {.optimizer = "adam", .steps = 50, .rate = 0.01},
                              .outer = {.optimizer = "adam", .rate = 0.1}},
                             std::make_unique<Truncated>(TruncatedOptions{.steps = 20}));
  const SolveSummary summary = solve(problem, algorithm, {.iterations = 100, .records = 4});
  for (const SolveRecord& r : summary.records) {
    std::cout << "iteration " << r.iteration << ": outer loss " << r.outer_loss << "\n";
  }
  problem.write(summary.state.inner.w);  // the trained weights, into the network
  std::cout << "weight decays " << summary.state.x.exp() << "\n";
}
