// What ModuleProblem costs beyond the module: a gradient, and a Hessian and a cross product, over the same
// calls of automatic differentiation written by hand for the same network. The target is 3 %. The two take
// turns, in processor time, and the median of the rounds' ratios is shown with the smallest and the largest
// beside it.
//
// By hand: the layers' functions on views of w, and grad() of their loss, without Oracle or Problem. The tiny
// network, whose operations take microseconds, shows the cost of an operation that is intercepted
// (problems/module_call.h); it is not held to the target.
//
// Options: --threads, --allocator, --rounds.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/support.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/random.h"
#include "bilevel/problems/module_problem.h"
#include "bilevel/run/restart.h"

namespace {

using bilevel::Batch;
using bilevel::Tensor;
using torch::autograd::grad;

constexpr double target_percent = 3;

struct Network {
  const char* name;
  int64_t features, hidden, classes, batch;
  int64_t repeats;  // of a call in one timing
  bool held;        // to the target
};

// One problem, both ways, at one point.
class Bench {
 public:
  explicit Bench(const Network& network)
      : inputs_(bilevel::Random(1).normal({network.batch, network.features}, at::kFloat)),
        labels_(at::arange(network.batch, at::kLong).remainder(network.classes)),
        net_(torch::nn::Linear(network.features, network.hidden), torch::nn::Tanh(),
             torch::nn::Linear(network.hidden, network.classes)),
        parameters_(net_->parameters()),
        problem_(
            net_,
            [this](torch::nn::Sequential& net, const Tensor& x, const Batch&) {
              return loss(net->forward(inputs_), parameters_, x);
            },
            [this](torch::nn::Sequential& net, const Tensor& x, const Batch&) {
              return loss(net->forward(inputs_), parameters_, x);
            },
            at::full({4}, -5.0)),
        w_(problem_.initial_inner(0)),
        x_(problem_.initial_outer(0)),
        v_(bilevel::Random(2).normal(w_.sizes(), w_.options())) {}

  int64_t size() const { return w_.numel(); }

  void gradient_by_module() {
    bilevel::Oracle oracle(problem_);
    oracle.inner_gradient(w_, x_, Batch{});
  }
  void gradient_by_hand() {
    const at::AutoGradMode enable(true);
    const Tensor w = w_.detach().requires_grad_(true);
    const Tensor g = by_hand(w, x_);
    checked(g);
    grad({g}, {w});
  }
  void products_by_module() {
    bilevel::Oracle oracle(problem_);
    oracle.linearize(w_, x_, Batch{})->hessian_and_cross(v_);
  }
  void products_by_hand() {
    const at::AutoGradMode enable(true);
    const Tensor w = w_.detach().requires_grad_(true), x = x_.detach().requires_grad_(true);
    const Tensor g = by_hand(w, x);
    checked(g);
    const Tensor gradient = grad({g}, {w}, {}, true, true)[0];
    grad({gradient}, {w, x}, {v_}, true);
  }

 private:
  // The loss is read once, as Oracle does for its check on finite numbers.
  static void checked(const Tensor& loss) {
    if (!std::isfinite(loss.item<double>())) throw std::runtime_error("the loss is not finite");
  }

  Tensor loss(const Tensor& logits, const std::vector<Tensor>& p, const Tensor& x) const {
    Tensor sum = at::nll_loss(at::log_softmax(logits, 1), labels_);
    for (size_t i = 0; i < p.size(); ++i) {
      sum = sum + x[static_cast<int64_t>(i)].exp() * p[i].square().sum();
    }
    return sum;
  }

  Tensor by_hand(const Tensor& w, const Tensor& x) const {
    const std::vector<Tensor> p = problem_.inner_layout()->split(w);
    return loss(at::linear(at::tanh(at::linear(inputs_, p[0], p[1])), p[2], p[3]), p, x);
  }

  Tensor inputs_, labels_;
  torch::nn::Sequential net_;
  std::vector<Tensor> parameters_;  // asked for once: the module puts its names together each time
  bilevel::ModuleProblem problem_;
  Tensor w_, x_, v_;
};

// Processor seconds of this process, of one call: other work on the machine does not count.
double timed(const std::function<void()>& call, int64_t repeats) {
  const std::clock_t begin = std::clock();
  for (int64_t i = 0; i < repeats; ++i) call();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / static_cast<double>(repeats);
}

void compare(const Network& network, const std::string& what, int64_t rounds,
             const std::function<void()>& module, const std::function<void()>& by_hand) {
  std::vector<double> ratios, seconds;
  for (int64_t round = 0; round <= rounds; ++round) {  // round 0 warms up
    // Who goes first changes from round to round: the second finds warmer caches.
    double own = 0, hand = 0;
    if (round % 2 == 0) own = timed(module, network.repeats);
    hand = timed(by_hand, network.repeats);
    if (round % 2 != 0) own = timed(module, network.repeats);
    if (round == 0) continue;
    ratios.push_back(own / hand);
    seconds.push_back(hand);
  }
  std::sort(ratios.begin(), ratios.end());
  std::sort(seconds.begin(), seconds.end());
  const double middle = ratios[ratios.size() / 2];
  const bool over = network.held && 100 * (middle - 1) > target_percent;
  fmt::print("{:<12} {:<20} {:>10.1f} us {:>8.3f} {:>10.3f} {:>8.3f}{}\n", network.name, what,
             1e6 * seconds[seconds.size() / 2], middle, ratios.front(), ratios.back(),
             over ? "  over the target" : "");
}

}  // namespace

int main(int argc, char** argv) try {
  bilevel::restart_with_best_settings(argv);
  bench::Options options(argc, argv);
  const bench::Machine machine(options);
  const int64_t rounds = options.integer("rounds", 31);
  options.finish();
  fmt::print("{} threads, allocator {}, float, median of {} rounds in turns\n\n", machine.threads,
             machine.allocator, rounds);
  fmt::print("{:<12} {:<20} {:>13} {:>8} {:>10} {:>8}\n", "", "", "by hand", "ratio", "smallest", "largest");
  for (const Network& network :
       {Network{"mnist", 784, 128, 10, 256, 10, true}, Network{"million", 784, 1258, 10, 256, 2, true},
        Network{"tiny", 6, 12, 4, 40, 100, false}}) {
    Bench one(network);
    compare(
        network, "gradient", rounds, [&] { one.gradient_by_module(); }, [&] { one.gradient_by_hand(); });
    compare(
        network, "hessian and cross", rounds, [&] { one.products_by_module(); },
        [&] { one.products_by_hand(); });
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_module_problem: {}\n", error.what());
  return 1;
}
