// One step of an architecture search on NAS-Bench-201, as iDARTS takes it: T weight steps, the Neumann
// hypergradient with K Hessian products on one kept graph and the cross product by a central difference, one
// Adam step of alpha. Prints JSON as bench/peers/search_step.py does, times in milliseconds: the whole step,
// its parts, and the rise of the process's peak over a step of T = 1, 4 and 16, which must not grow with T.
// Both levels have one batch of synthetic images and no augmentation, so that the peer can compute the same.
//
// Options: --channels --cells (a stage) --batch --steps T --terms K --repeat --threads --allocator --device
// --double, --plain (copies one by one), --autograd (no tape), --exact-cross (no difference in the step),
// --space
// --deterministic (cuDNN's algorithms by rule, not by trial), --only step|parts|memory|operations|kernels,
// --write DIR (weights, alpha, images and labels for the peer; nothing is measured).

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/kernel_times.h"
#include "bench/support.h"
#include "bilevel/algorithms/double_loop.h"
#include "bilevel/core/central_difference.h"
#include "bilevel/core/finite.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/data/npy.h"
#include "bilevel/hypergradients/neumann.h"
#include "bilevel/nas/captured_supernet.h"
#include "bilevel/nas/supernet_problem.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/nas/tape/taped_supernet.h"
#include "bilevel/run/operation_times.h"
#include "bilevel/run/restart.h"

namespace {

using bilevel::Tensor;
using Json = nlohmann::ordered_json;

constexpr double rate = 0.01, difference_step = 0.01, weight_decay = 5e-4;

struct Job {
  int64_t channels, cells, batch, steps, terms, repeat;
  at::TensorOptions tensors;
  bool plain, exact_cross;
  std::string space;
};

// The process's own seconds where it has one thread of the CPU, so that other processes are not measured.
double now(const Job& job) {
  timespec time{};
  const bool own = at::get_num_threads() == 1 && job.tensors.device().is_cpu();
  clock_gettime(own ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Reading one number waits for all that the device was asked before.
void wait_for(const Tensor& result) { result.reshape(-1)[0].item<double>(); }

Json measure(const Job& job, const std::function<Tensor()>& work) {
  std::vector<double> times;
  for (int64_t i = 0; i < job.repeat; ++i) {
    const double begin = now(job);
    wait_for(work());
    times.push_back(1e3 * (now(job) - begin));
  }
  std::sort(times.begin(), times.end());
  const size_t half = times.size() / 2;
  const double median = times.size() % 2 == 1 ? times[half] : (times[half - 1] + times[half]) / 2;
  return {{"median", median}, {"min", times.front()}};
}

bilevel::LabelledImages images(const Job& job, uint64_t seed) {
  return bilevel::nas::draw_images({.samples = job.batch, .height = 32, .width = 32, .seed = seed},
                                   job.tensors);
}

bilevel::nas::SupernetProblem make_problem(const Job& job) {
  bilevel::nas::SupernetOptions options;
  options.channels = job.channels;
  options.cells = job.cells;
  options.merged = !job.plain;
  return {bilevel::nas::Supernet(bilevel::nas::make_space(job.space), options),
          bilevel::nas::image_source(images(job, 1)), bilevel::nas::image_source(images(job, 2)),
          job.tensors};
}

bilevel::InnerOptions inner_options(int64_t steps) {
  bilevel::InnerOptions inner;
  inner.optimizer = "nesterov";
  inner.steps = steps;
  inner.rate = rate;
  inner.clip_norm = 5;
  return inner;
}

bilevel::DoubleLoop make_algorithm(const Job& job, int64_t steps) {
  bilevel::DoubleLoopOptions loop;
  loop.inner = inner_options(steps);
  loop.outer.optimizer = "adam";
  loop.outer.rate = 3e-4;
  loop.outer.beta1 = 0.5;
  loop.outer.preparation.weight_decay = 1e-3;
  loop.warm_start_linear = false;
  bilevel::NeumannEstimatorOptions series;
  series.terms = job.terms;
  series.curvature.difference_cross = !job.exact_cross;
  series.curvature.difference_step = difference_step;
  return {loop, std::make_unique<bilevel::NeumannEstimator>(series)};
}

// A search under way: every call of step() is one outer step.
class Search {
 public:
  Search(const bilevel::Problem& problem, const Job& job, int64_t steps)
      : oracle_(problem),
        algorithm_(make_algorithm(job, steps)),
        streams_(1, problem.inner_samples(), problem.outer_samples()),
        state_(algorithm_.init(oracle_, problem.initial_outer(1), problem.initial_inner(1))) {}
  Tensor step() { return algorithm_.step(oracle_, state_, streams_).direction; }

 private:
  bilevel::Oracle oracle_;
  bilevel::NoWaiting as_in_a_search_{oracle_.finite()};
  bilevel::DoubleLoop algorithm_;
  bilevel::Streams streams_;
  bilevel::AlgorithmState state_;
};

Json measure_parts(const bilevel::Problem& problem, const Job& job) {
  bilevel::Oracle oracle(problem);
  const bilevel::NoWaiting as_in_a_search(oracle.finite());
  const Tensor x = problem.initial_outer(1);
  const auto optimizer = bilevel::make_inner_optimizer(inner_options(job.steps));
  bilevel::InnerState state = optimizer->start(problem.initial_inner(1));
  Json parts;
  parts["weight_step"] = measure(job, [&] {
    state = optimizer->step(state, oracle.inner_gradient(state.w, x, {}), {.value = rate, .learned = {}});
    return state.w;
  });
  parts["alpha_gradient"] = measure(job, [&] { return oracle.outer_gradients(state.w, x, {}).x; });
  parts["alpha_gradient_alone"] =
      measure(job, [&] { return oracle.outer_gradient_in_outer(state.w, x, {}).x; });
  parts["hessian_graph"] = measure(job, [&] { return oracle.linearize(state.w, x, {})->gradient(); });
  const Tensor v = oracle.outer_gradients(state.w, x, {}).w;
  {
    const auto graph = oracle.linearize(state.w, x, {});
    graph->gradient();
    parts["hessian_product"] = measure(job, [&] { return graph->hessian(v); });
    parts["cross_exact"] = measure(job, [&] { return graph->cross(v); });
  }
  parts["cross_difference"] = measure(job, [&] {
    return bilevel::central_difference(
        [&](const Tensor& w) { return oracle.inner_gradient_in_outer(w, x, {}); }, state.w, v,
        difference_step, &oracle.finite());
  });
  return parts;
}

Json measure_memory(const bilevel::Problem& problem, const Job& job) {
  Json megabytes;
  for (const int64_t steps : {1, 4, 16}) {
    Search search(problem, job, steps);
    const bench::PeakMemory memory;
    wait_for(search.step());
    megabytes[std::to_string(steps)] = static_cast<double>(memory.rise()) / 1e6;
  }
  return megabytes;
}

// LibTorch's operations in one step, by the time that each spends itself.
Json measure_operations(Search& search) {
  const bilevel::OperationTimes times;
  wait_for(search.step());
  Json table = Json::array();
  for (const auto& row : times.operations()) {
    if (table.size() == 30) break;
    table.push_back({{"name", row.name}, {"ms", 1e3 * row.own}, {"calls", row.calls}});
  }
  return table;
}

// A GPU's kernels in one step, and in each of its parts.
Json measure_kernels(const bilevel::Problem& problem, Search& search) {
  const auto table = [](const std::function<Tensor()>& work) {
    wait_for(work());
    bench::KernelTimes times;
    wait_for(work());
    return times.stop(40, "/tmp/bench_search_step.trace.json");
  };
  bilevel::Oracle oracle(problem);
  const Tensor x = problem.initial_outer(1), w = problem.initial_inner(1);
  const Tensor v = oracle.outer_gradients(w, x, {}).w;
  const auto kept = oracle.linearize(w, x, {});
  Json parts;
  parts["step"] = table([&] { return search.step(); });
  parts["weight_gradient"] = table([&] { return oracle.inner_gradient(w, x, {}); });
  parts["hessian_product"] = table([&] { return kept->hessian(v); });
  return parts;
}

void write_data(const bilevel::Problem& problem, const Job& job, const std::string& folder) {
  const auto train = images(job, 1), valid = images(job, 2);
  bilevel::write_npy(folder + "/images.npy", at::cat({train.images, valid.images}).cpu());
  bilevel::write_npy(folder + "/labels.npy", at::cat({train.labels, valid.labels}).cpu());
  bilevel::write_npy(folder + "/weights.npy", problem.initial_inner(1).cpu());
  bilevel::write_npy(folder + "/alpha.npy", problem.initial_outer(1).cpu());
}

Json measure_all(const bilevel::Problem& problem, const Job& job, const std::string& only) {
  Json record;
  Search search(problem, job, job.steps);
  const Tensor first = search.step().to(at::kCPU, at::kDouble);  // warms up, too
  record["parameters"] = problem.initial_inner(1).numel();
  record["hypergradient_norm"] = first.norm().item<double>();
  record["hypergradient_first"] = first[1].item<double>();
  if (only.empty() || only == "step") record["step"] = measure(job, [&] { return search.step(); });
  if (only.empty() || only == "parts") record["parts"] = measure_parts(problem, job);
  if ((only.empty() || only == "memory") && job.tensors.device().is_cpu()) {
    record["memory_mb"] = measure_memory(problem, job);
  }
  if (only == "operations") record["operations"] = measure_operations(search);
  if (only == "kernels") record["kernels"] = measure_kernels(problem, search);
  return record;
}

}  // namespace

int main(int argc, char** argv) try {
  bilevel::restart_with_best_settings(argv);
  bench::Options options(argc, argv);
  Job job{};
  job.channels = options.integer("channels", 8);
  job.cells = options.integer("cells", 1);
  job.batch = options.integer("batch", 64);
  job.steps = options.integer("steps", 4);
  job.terms = options.integer("terms", 2);
  job.repeat = options.integer("repeat", 3);
  job.plain = options.flag("plain");
  job.exact_cross = options.flag("exact-cross");
  job.space = options.text("space", "nasbench201");
  const bool autograd = options.flag("autograd");
  const bench::Machine machine(options);
  job.tensors = at::TensorOptions()
                    .dtype(options.flag("double") ? at::kDouble : at::kFloat)
                    .device(c10::Device(options.text("device", "cpu")));
  const bool deterministic = options.flag("deterministic");
  const std::string only = options.text("only", "");
  const std::string folder = options.text("write", "");
  options.finish();
  const std::set<std::string> choices = {"", "step", "parts", "memory", "operations", "kernels"};
  if (choices.count(only) == 0) {
    throw std::invalid_argument("--only " + only + ": choose step, parts, memory, operations or kernels");
  }
  if (only == "kernels" && !job.tensors.device().is_cuda()) {
    throw std::invalid_argument("--only kernels: the kernels are a GPU's; give --device cuda");
  }
  if (job.tensors.device().is_cuda()) {
    at::globalContext().setBenchmarkCuDNN(!deterministic);
    at::globalContext().setDeterministicCuDNN(deterministic);
    at::globalContext().setAllowTF32CuDNN(true);
    at::globalContext().setAllowTF32CuBLAS(true);
  }
  const bilevel::nas::SupernetProblem search = make_problem(job);
  const bool graphs = job.tensors.device().is_cuda() && !job.plain && bilevel::nas::can_capture();
  const auto engine = graphs     ? bilevel::nas::capture_supernet(search, job.batch, !autograd)
                      : autograd ? nullptr
                                 : bilevel::nas::tape_supernet(search);
  const bilevel::Problem& base = engine ? *engine : static_cast<const bilevel::Problem&>(search);
  const bilevel::WithWeightDecay problem(base, weight_decay);
  if (folder.empty()) {
    fmt::print("{}\n", measure_all(problem, job, only).dump(2));
  } else {
    write_data(problem, job, folder);
  }
  return 0;
} catch (const c10::Error& error) {
  fmt::print(stderr, "bench_search_step: {}\n", error.what_without_backtrace());
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_search_step: {}\n", error.what());
  return 1;
}
