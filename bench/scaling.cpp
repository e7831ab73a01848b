// How time and memory grow with the size of a job: one size at a time is doubled from a common base, and the
// exponent is that of the power law which fits the measured sizes best (least squares of the logarithms).
//
//   cleaning   a hypergradient of data hyper-cleaning: T inner steps and K steps of conjugate gradients, on
//              dense or sparse examples
//   reverse    the same by reverse mode through the T steps
//   tuning     one regulariser per feature on sparse text, T inner steps and K terms of conjugate gradients
//   learning   a meta-batch of five-way tasks with linear heads on a shared network
//
// Time is the fastest of several runs (processor time on one thread, the wall's on several), memory the rise
// of the process's peak over one. Options: --job (one alone), --rounds, --threads, --allocator, --most (the
// largest factor over the base).

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bench/support.h"
#include "bilevel/core/random.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/meta/blobs.h"
#include "bilevel/meta/learner.h"
#include "bilevel/meta/networks.h"
#include "bilevel/problems/regularized_softmax.h"
#include "bilevel/problems/weighted_softmax.h"
#include "bilevel/run/blas_kernels.h"
#include "bilevel/run/restart.h"

namespace {

using bilevel::FeatureMatrix;
using bilevel::Random;
using bilevel::Tensor;
using Work = std::function<void()>;

struct Sizes {
  int64_t examples = 2500, features = 392, classes = 10, steps = 20, terms = 10, tasks = 8;
};
struct Axis {
  std::string name;
  int64_t Sizes::*size;
};
struct Job {
  std::string name;
  Sizes base;
  std::vector<Axis> axes;
  std::function<Work(const Sizes&)> prepare;  // what is prepared is neither timed nor counted as memory
};

// A fifth of the numbers are not zero, unless all are wanted.
Tensor examples(int64_t count, int64_t features, double share, uint64_t seed) {
  Random random(seed);
  const Tensor values = random.uniform({count, features}, at::kFloat);
  return share >= 1 ? values : values * random.uniform({count, features}, at::kFloat).lt(share);
}

bilevel::CleaningData cleaning_data(const Sizes& s, double share) {
  bilevel::CleaningData data;
  data.classes = s.classes;
  data.train = {examples(s.examples, s.features, share, 1),
                at::arange(s.examples, at::kLong).remainder(s.classes)};
  data.valid = {examples(s.examples, s.features, share, 2),
                at::arange(s.examples, at::kLong).remainder(s.classes)};
  return data;
}

Work hypergradient(std::shared_ptr<const bilevel::Problem> problem, const Sizes& s, const std::string& method,
                   double rate) {
  return [problem, s, method, rate] {
    bilevel::Oracle oracle(*problem);
    bilevel::EstimatorSettings settings;
    settings.terms = s.terms;
    const auto estimator = bilevel::make_estimator(method, settings);
    const Tensor x = problem->initial_outer(0), w = problem->initial_inner(0);
    bilevel::InnerLoop run;
    run.options.steps = s.steps;
    run.options.rate = rate;
    run.measure_gradient = false;
    run.keep = estimator->keeps(s.steps, static_cast<int64_t>(w.nbytes()));
    bilevel::Trajectory inner = bilevel::run_inner(oracle, x, w, run);
    estimator->estimate(oracle, {.x = x, .inner = inner});
  };
}

Work cleaning(const Sizes& s, double share, const std::string& method) {
  return hypergradient(std::make_shared<bilevel::WeightedSoftmax>(
                           cleaning_data(s, share), 0.001, at::kFloat,
                           share < 1 ? FeatureMatrix::Storage::sparse : FeatureMatrix::Storage::dense),
                       s, method, 0.05);
}

Work tuning(const Sizes& s) {  // a hundred words an example, more features than examples
  Random random(3);
  const int64_t words = 100;
  const Tensor start = random.permutation(s.features).repeat({s.examples / s.features + 1});
  std::vector<Tensor> columns;
  const int64_t apart = s.features / words;
  for (int64_t i = 0; i < s.examples; ++i) {
    const int64_t first = start[i].item<int64_t>() % apart;
    columns.push_back(at::arange(first, first + words * apart, apart, at::kLong));
  }
  const Tensor values = at::full({s.examples * words}, 0.1, at::kFloat);
  const bilevel::LabelledRows rows{
      FeatureMatrix::from_csr(at::arange(0, (s.examples + 1) * words, words, at::kLong), at::cat(columns),
                              values, s.features),
      at::arange(s.examples, at::kLong).remainder(s.classes)};
  return hypergradient(std::make_shared<bilevel::RegularizedSoftmax>(rows, rows, s.classes), s, "cg", 1.0);
}

Work learning(const Sizes& s) {
  const auto source = std::make_shared<bilevel::meta::Blobs>(
      bilevel::meta::TaskShape{.ways = 5, .shots = 5, .queries = 15}, bilevel::meta::BlobsOptions{}, 0,
      at::TensorOptions().dtype(at::kFloat));
  bilevel::meta::LearnerOptions options = bilevel::meta::default_learner_options("aid");
  options.inner_steps = s.steps;
  options.terms = s.terms;
  const auto learner = std::make_shared<bilevel::meta::Learner>(
      options, bilevel::meta::make_network({.name = "mlp", .filters = 64}, source->input_shape(), 5),
      at::TensorOptions().dtype(at::kFloat));
  const Tensor x = learner->initial_outer(0);
  const bilevel::meta::TaskBatch tasks = source->tasks(bilevel::meta::Part::train, 0, s.tasks);
  return [source, learner, x, tasks] { learner->hypergradient(x, tasks); };
}

struct Point {
  double size, ms, megabytes;
};

// The process's own seconds where it has one thread, so that other processes are not measured; else the
// wall's.
double now() {
  timespec time{};
  clock_gettime(at::get_num_threads() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Point measure(double size, const Work& work, int64_t rounds) {
  work();
  double fastest = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < rounds; ++i) {
    const double begin = now();
    work();
    fastest = std::min(fastest, 1e3 * (now() - begin));
  }
  const bench::PeakMemory memory;
  work();
  return {size, fastest, static_cast<double>(memory.rise()) / 1e6};
}

// The exponent of the power law through the points; NaN where one of them is not positive.
double exponent(const std::vector<Point>& points, double Point::*value) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Point& point : points) {
    const double a = std::log(point.size), b = std::log(point.*value);
    n += 1;
    x += a;
    y += b;
    xx += a * a;
    xy += a * b;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

void print_axis(const std::string& name, const std::vector<Point>& points, bool memory) {
  std::string sizes, times, megabytes;
  for (const Point& point : points) {
    sizes += fmt::format(" {:>9.0f}", point.size);
    times += fmt::format(" {:>9.2f}", point.ms);
    megabytes += fmt::format(" {:>9.1f}", point.megabytes);
  }
  fmt::print("{:<12} {:<4}{}\n{:<12} {:<4}{}   size^{:.2f}\n", name, "", sizes, "", "ms", times,
             exponent(points, &Point::ms));
  if (memory) {
    fmt::print("{:<12} {:<4}{}   size^{:.2f}\n", "", "MB", megabytes, exponent(points, &Point::megabytes));
  }
}

void run(const Job& job, int64_t rounds, int64_t most, int64_t threads) {
  const Sizes& b = job.base;
  fmt::print("\n{}: {} examples, {} features, {} classes, T = {}, K = {}, {} tasks where it has them\n",
             job.name, b.examples, b.features, b.classes, b.steps, b.terms, b.tasks);
  for (const Axis& axis : job.axes) {
    std::vector<Point> points;
    for (int64_t factor = 1; factor <= most; factor *= 2) {
      Sizes sizes = job.base;
      sizes.*axis.size *= factor;
      points.push_back(measure(static_cast<double>(sizes.*axis.size), job.prepare(sizes), rounds));
    }
    print_axis(axis.name, points, true);
  }
  std::vector<Point> points;
  const Work work = job.prepare(job.base);
  for (int64_t count = 1; count <= threads; count *= 2) {
    at::set_num_threads(static_cast<int>(count));
    points.push_back(measure(static_cast<double>(count), work, rounds));
  }
  at::set_num_threads(static_cast<int>(threads));
  if (points.size() > 1) print_axis("threads", points, false);
}

}  // namespace

int main(int argc, char** argv) try {
  bilevel::restart_with_best_settings(argv);
  bench::Options options(argc, argv);
  const bench::Machine machine(options);
  const std::string only = options.text("job", "");
  const int64_t rounds = options.integer("rounds", 3), most = options.integer("most", 8);
  options.finish();
  const std::vector<Axis> cleaning_axes = {{"examples", &Sizes::examples},
                                           {"features", &Sizes::features},
                                           {"classes", &Sizes::classes},
                                           {"T", &Sizes::steps},
                                           {"K", &Sizes::terms}};
  const std::vector<Job> jobs = {
      {"cleaning, dense", {}, cleaning_axes, [](const Sizes& s) { return cleaning(s, 1, "cg"); }},
      {"cleaning, sparse", {}, cleaning_axes, [](const Sizes& s) { return cleaning(s, 0.2, "cg"); }},
      {"reverse, sparse",
       {},
       {{"T", &Sizes::steps}, {"features", &Sizes::features}},
       [](const Sizes& s) { return cleaning(s, 0.2, "reverse"); }},
      {"tuning",
       {.examples = 1000, .features = 10000, .classes = 20},
       {{"examples", &Sizes::examples},
        {"features", &Sizes::features},
        {"classes", &Sizes::classes},
        {"T", &Sizes::steps},
        {"K", &Sizes::terms}},
       tuning},
      {"learning",
       {.examples = 0, .features = 0, .classes = 5},
       {{"tasks", &Sizes::tasks}, {"T", &Sizes::steps}, {"K", &Sizes::terms}},
       learning},
  };
  fmt::print("time and memory against size, {} threads at most, float; BLAS kernels {}\n", machine.threads,
             bilevel::blas_kernels().running);
  for (const Job& job : jobs) {
    if (only.empty() || job.name.rfind(only, 0) == 0) run(job, rounds, most, machine.threads);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_scaling: {}\n", error.what());
  return 1;
}
