// What second derivatives cost in gradients of the same loss: a Hessian product, the pair of Hessian and
// cross product that reverse mode takes at every step, and a Gauss-Newton product; from scratch (forward
// pass, gradient and product) and on a kept linearization (the product alone). The target is 4 gradients at
// most. Repetitions of all of them are shuffled, so that a disturbance of the machine falls on every one, and
// the ratio is that of the medians of the processor time, which a busy machine disturbs less than the clock.
//
// Options: --threads, --allocator, --double, and those of Google Benchmark (--benchmark_filter=conv).

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/support.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/random.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/problems/softmax_loss.h"
#include "bilevel/problems/softmax_regression.h"
#include "bilevel/run/restart.h"

namespace {

using bilevel::Batch;
using bilevel::Tensor;

constexpr double target = 4;

std::unique_ptr<bilevel::Problem> large_mlp(at::ScalarType dtype) {
  bilevel::MlpOptions options;
  options.data = {.classes = 10, .features = 784, .separation = 1, .unit_rows = false};
  options.hidden = 1258;  // 1,000,120 weights
  options.samples = 256;
  options.valid_samples = 256;
  options.tensors = at::TensorOptions().dtype(dtype);
  return std::make_unique<bilevel::Mlp>(options);
}

// The size of the papers' MNIST: 5000 examples of 785 features.
std::unique_ptr<bilevel::Problem> softmax_regression(at::ScalarType dtype) {
  bilevel::SoftmaxRegressionOptions options;
  options.data = {.classes = 10, .features = 785, .separation = 1, .unit_rows = true};
  options.samples = 5000;
  options.tensors = at::TensorOptions().dtype(dtype);
  return std::make_unique<bilevel::SoftmaxRegression>(options);
}

// Three convolutions with average pooling and a linear layer on 64 images of 3 x 32 x 32, one log regulariser
// per weight tensor, from two lambdas as a user would write it.
std::unique_ptr<bilevel::Problem> small_conv_net(at::ScalarType dtype) {
  const auto tensors = at::TensorOptions().dtype(dtype);
  const int64_t examples = 64, classes = 10;
  bilevel::Layout weights;
  weights.add("conv1", {16, 3, 3, 3});
  weights.add("conv2", {32, 16, 3, 3});
  weights.add("conv3", {64, 32, 3, 3});
  weights.add("linear", {classes, 64});

  bilevel::Random random(1);
  const Tensor images = random.normal({examples, 3, 32, 32}, tensors);
  const Tensor labels = at::arange(examples, at::kLong).remainder(classes);
  std::vector<Tensor> start;
  for (const auto& entry : weights.entries()) {
    const double inputs = static_cast<double>(entry.size / entry.shape[0]);
    start.push_back(random.normal(entry.shape, tensors) / std::sqrt(inputs));
  }

  const auto outer = [weights, images, labels](const Tensor& w, const Tensor& /*x*/, const Batch& /*batch*/) {
    const std::vector<Tensor> parts = weights.split(w);
    Tensor hidden = images;
    for (size_t layer = 0; layer < 3; ++layer) {
      hidden = at::conv2d(hidden, parts[layer], /*bias=*/{}, /*stride=*/1, /*padding=*/1).relu();
      hidden = layer < 2 ? at::avg_pool2d(hidden, {2, 2}) : hidden.mean({2, 3});
    }
    return bilevel::mean_cross_entropy(hidden.mm(parts[3].t()), labels);
  };
  const auto inner = [weights, outer](const Tensor& w, const Tensor& x, const Batch& batch) {
    return outer(w, x, batch) + (weights.repeat_per_entry(x.exp()) * w * w).sum();
  };
  return std::make_unique<bilevel::FunctionProblem>(inner, outer, weights.flatten(start),
                                                    at::full({4}, -7, tensors));
}

struct Point {
  std::unique_ptr<bilevel::Problem> problem;
  Tensor w, x, v;
  Batch batch;
  std::unique_ptr<bilevel::Linearization> kept;

  explicit Point(std::unique_ptr<bilevel::Problem> made) : problem(std::move(made)) {
    w = problem->initial_inner(0);
    x = problem->initial_outer(0);
    bilevel::Random random(2);
    v = random.normal(w.sizes(), w.options());
    w = w + 0.01 * random.normal(w.sizes(), w.options());  // a weight of zero could make a product cheaper
    kept = problem->linearize(w, x, batch);
    kept->hessian(v);
  }
  std::unique_ptr<bilevel::Linearization> linearize() const { return problem->linearize(w, x, batch); }
};

using Work = std::function<void(Point&)>;

// The rows of the table; "gradient" is what the others are divided by.
const std::vector<std::pair<std::string, Work>>& works() {
  static const std::vector<std::pair<std::string, Work>> all = {
      {"gradient", [](Point& p) { p.problem->inner_gradient(p.w, p.x, p.batch); }},
      {"hessian, from scratch", [](Point& p) { p.linearize()->hessian(p.v); }},
      {"hessian, kept", [](Point& p) { p.kept->hessian(p.v); }},
      {"hessian and cross, from scratch", [](Point& p) { p.linearize()->hessian_and_cross(p.v); }},
      {"hessian and cross, kept", [](Point& p) { p.kept->hessian_and_cross(p.v); }},
      {"gauss-newton, from scratch", [](Point& p) { p.linearize()->gauss_newton(p.v); }},
      {"gauss-newton, kept", [](Point& p) { p.kept->gauss_newton(p.v); }},
  };
  return all;
}

// Collects the medians that Google Benchmark computes and prints them as one table.
class RatioReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Aggregate && run.aggregate_name == "median") {
        medians_[run.run_name.function_name] = {run.GetAdjustedRealTime(), run.GetAdjustedCPUTime()};
      }
    }
  }

  void Finalize() override {
    fmt::print("{:<20} {:<33} {:>9} {:>9} {:>10}\n", "", "", "ms", "cpu ms", "gradients");
    for (const std::string problem : {"mlp", "softmax-regression", "conv-net"}) {
      const auto gradient = medians_.find(problem + "/gradient");
      if (gradient == medians_.end()) continue;
      for (const auto& [name, work] : works()) {
        const auto found = medians_.find(problem + "/" + name);
        if (found == medians_.end()) continue;
        const double ratio = found->second.cpu / gradient->second.cpu;
        fmt::print("{:<20} {:<33} {:>9.2f} {:>9.2f} {:>10.2f}{}\n", name == "gradient" ? problem : "", name,
                   found->second.real, found->second.cpu, ratio, ratio <= target ? "" : "  over the target");
      }
    }
  }

 private:
  struct Milliseconds {
    double real, cpu;
  };
  std::map<std::string, Milliseconds> medians_;
};

void register_all(const std::string& name, const std::shared_ptr<Point>& point) {
  const bool by_parts = point->problem->inner_parts(point->w, point->x, point->batch).has_value();
  for (const auto& [row, work] : works()) {
    if (row.rfind("gauss-newton", 0) == 0 && !by_parts) continue;
    benchmark::RegisterBenchmark((name + "/" + row).c_str(),
                                 [point, todo = work](benchmark::State& state) {
                                   for (auto _ : state) todo(*point);
                                 })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->MinTime(0.1)
        ->Repetitions(9)
        ->ReportAggregatesOnly(true);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  bilevel::restart_with_best_settings(argv);
  std::vector<char*> arguments(argv, argv + argc);
  std::string shuffle = "--benchmark_enable_random_interleaving=true";
  arguments.insert(arguments.begin() + 1, shuffle.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  bench::Options options(count, arguments.data());
  const bench::Machine machine(options);
  const at::ScalarType dtype = options.flag("double") ? at::kDouble : at::kFloat;
  options.finish();

  const std::map<std::string, std::shared_ptr<Point>> points = {
      {"mlp", std::make_shared<Point>(large_mlp(dtype))},
      {"softmax-regression", std::make_shared<Point>(softmax_regression(dtype))},
      {"conv-net", std::make_shared<Point>(small_conv_net(dtype))}};
  fmt::print("{} threads, allocator {}, {}\n\n", machine.threads, machine.allocator, c10::toString(dtype));
  for (const auto& [name, point] : points) register_all(name, point);
  RatioReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
} catch (const c10::Error& error) {
  fmt::print(stderr, "bench_hessian_product: {}\n", error.what_without_backtrace());
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_hessian_product: {}\n", error.what());
  return 1;
}
