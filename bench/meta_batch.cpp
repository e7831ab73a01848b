// A meta-batch of few-shot tasks: solved together, and one after another; and reverse mode through the last K
// inner steps, beside all of them. Prints one JSON object, times in milliseconds, the fastest of several.
// With --write it leaves the tasks and x as NPY files, so that another program can do the same job
// (bench/peers/meta_batch.py, bench/compare_meta). --learner takes another one than aid, on the same tasks
// (bench/compare_libraries).

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "bilevel/core/random.h"
#include "bilevel/data/npy.h"
#include "bilevel/meta/blobs.h"
#include "bilevel/meta/learner.h"
#include "bilevel/meta/networks.h"
#include "bilevel/run/restart.h"

namespace {

using namespace bilevel;
using namespace bilevel::meta;

struct Flags {
  int64_t tasks = 32, ways = 5, shots = 5, queries = 15, filters = 64, repeat = 5;
  std::string learner = "aid";
  int64_t images = 64, horizon = 50, truncate = 10;  // filters of Omniglot's network, T, K
  int threads = 1;
  bool wide = false;  // double precision
  std::string write;
};

double fastest(int64_t repeat, const std::function<void()>& job) {
  double best = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < repeat; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    job();
    const auto end = std::chrono::steady_clock::now();
    best = std::min(best, 1000 * std::chrono::duration<double>(end - begin).count());
  }
  return best;
}

TaskBatch one_of(const TaskBatch& tasks, int64_t i) {
  return {tasks.train_inputs.narrow(0, i, 1), tasks.train_targets.narrow(0, i, 1),
          tasks.valid_inputs.narrow(0, i, 1), tasks.valid_targets.narrow(0, i, 1)};
}

void write(const std::string& folder, const TaskBatch& tasks, const Tensor& x) {
  write_npy(folder + "/x.npy", x);
  write_npy(folder + "/train_inputs.npy", tasks.train_inputs);
  write_npy(folder + "/train_targets.npy", tasks.train_targets);
  write_npy(folder + "/valid_inputs.npy", tasks.valid_inputs);
  write_npy(folder + "/valid_targets.npy", tasks.valid_targets);
}

nlohmann::json heads(const Flags& f, const at::TensorOptions& tensors) {
  const Blobs source({.ways = f.ways, .shots = f.shots, .queries = f.queries}, {}, 0, tensors);
  const Learner learner(default_learner_options(f.learner),
                        make_network({.name = "mlp", .filters = f.filters}, source.input_shape(), f.ways),
                        tensors);
  const Tensor x = learner.initial_outer(0);
  const TaskBatch tasks = source.tasks(Part::train, 0, f.tasks);
  if (!f.write.empty()) write(f.write, tasks, x);
  const Tensor value = learner.hypergradient(x, tasks).value;
  Tensor sum = at::zeros_like(x);
  const double together = fastest(f.repeat, [&] { learner.hypergradient(x, tasks); });
  const double apart = fastest(f.repeat, [&] {
    sum = at::zeros_like(x);
    for (int64_t i = 0; i < f.tasks; ++i) sum = sum + learner.hypergradient(x, one_of(tasks, i)).value;
  });
  return {{"learner", f.learner},
          {"steps", learner.options().inner_steps},
          {"rate", learner.options().inner_rate},
          {"together", together},
          {"one_after_another", apart},
          {"ratio", apart / together},
          {"difference", ((sum / f.tasks - value).norm() / value.norm()).item<double>()},
          {"hypergradient_norm", value.norm().item<double>()},
          {"hypergradient_first", value[0].item<double>()}};
}

nlohmann::json truncation(const Flags& f, const at::TensorOptions& tensors) {
  const Network network = make_network({.name = "omniglot", .filters = f.images}, {1, 28, 28}, 5);
  const auto images = [&](const char* name, int64_t each) {
    return Random(named_seed(0, name)).uniform({4, 5 * each, 1, 28, 28}, tensors);
  };
  const auto targets = [](int64_t each) {
    return at::arange(5, at::kLong).repeat_interleave(each).expand({4, 5 * each}).contiguous();
  };
  const TaskBatch tasks = {images("train", 1), targets(1), images("valid", 15), targets(15)};
  nlohmann::json result;
  LearnerOptions options = default_learner_options("hyper-representation");
  options.inner_steps = f.horizon;
  for (const int64_t truncate : {f.truncate, int64_t{0}}) {
    options.truncate = truncate;
    const Learner learner(options, network, tensors);
    const Tensor x = learner.initial_outer(0);
    int64_t bytes = 0;
    const double time = fastest(std::max<int64_t>(1, f.repeat / 2),
                                [&] { bytes = learner.hypergradient(x, tasks).bytes_kept; });
    result[truncate == 0 ? "full" : "truncated"] = {{"time", time}, {"bytes", bytes}};
  }
  result["time_share"] = result["truncated"]["time"].get<double>() / result["full"]["time"].get<double>();
  result["bytes_share"] = result["truncated"]["bytes"].get<double>() / result["full"]["bytes"].get<double>();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  bilevel::restart_with_best_settings(argv);
  Flags f;
  bool only_heads = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--double") {
      f.wide = true;
    } else if (name == "--heads") {
      only_heads = true;
    } else if (i + 1 < argc) {
      const std::string value = argv[++i];
      if (name == "--write") f.write = value;
      if (name == "--learner") f.learner = value;
      if (name == "--tasks") f.tasks = std::stoll(value);
      if (name == "--filters") f.filters = std::stoll(value);
      if (name == "--omniglot-filters") f.images = std::stoll(value);
      if (name == "--repeat") f.repeat = std::stoll(value);
      if (name == "--threads") f.threads = std::stoi(value);
    }
  }
  at::set_num_threads(f.threads);
  const auto tensors = at::TensorOptions().dtype(f.wide ? at::kDouble : at::kFloat);
  nlohmann::json out = {{"tasks", f.tasks}, {"threads", f.threads}, {"heads", heads(f, tensors)}};
  if (!only_heads) out["truncation"] = truncation(f, tensors);
  fmt::print("{}\n", out.dump());
  return 0;
}
