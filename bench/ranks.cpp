// What several processes cost: a step of a search (iDARTS), of a training and of hyper-cleaning, by this
// process alone or as one of the ranks that the environment names, with what a step sends; and sums of so
// many floats over the ranks, which bound what a step can reach. bench/compare_ranks starts it and compares.
// Prints JSON: wall-clock times in milliseconds, the median and the least, and the least processor time.
//
// Options: --channels --cells --batch (of the search; the training has as many) --steps T --terms K
// --examples
// --features (of hyper-cleaning) --repeat --threads --allocator, --norms rank (batch norm of each rank's own
// images), --only search|train|cleaning|sums.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/support.h"
#include "bilevel/algorithms/registry.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/distributed/distributed_problem.h"
#include "bilevel/nas/ranked_supernet.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/nas/tape/taped_supernet.h"
#include "bilevel/nas/train.h"
#include "bilevel/problems/weighted_softmax.h"
#include "bilevel/run/restart.h"

namespace {

using bilevel::ProcessGroup;
using bilevel::Tensor;
using Json = nlohmann::ordered_json;
using Group = std::shared_ptr<ProcessGroup>;

struct Job {
  int64_t channels, cells, batch, steps, terms, examples, features, repeat;
  bilevel::nas::BatchRanks ranks;
};

Json communication(const Job& job, const bilevel::Communication& before, const bilevel::Communication& now) {
  const auto each = static_cast<double>(job.repeat);
  return {{"calls", static_cast<double>(now.calls - before.calls) / each},
          {"bytes", static_cast<double>(now.bytes - before.bytes) / each},
          {"ms", 1e3 * (now.seconds - before.seconds) / each}};
}

// Of all threads of this process: other work on the machine changes it little.
double processor_milliseconds() {
  ::timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// All ranks begin together.
Json measure(const Job& job, const std::function<void()>& work) {
  ProcessGroup* group = job.ranks.group.get();
  work();
  if (group != nullptr) group->barrier();
  const bilevel::nas::BatchRanks& ranks = job.ranks;
  const auto in_norms = [&] { return ranks.norms ? ranks.norms->sent() : bilevel::Communication{}; };
  const bilevel::Communication sums = group != nullptr ? without_norms(ranks) : bilevel::Communication{},
                               norms = in_norms();
  std::vector<double> times, processor;
  for (int64_t i = 0; i < job.repeat; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const double used = processor_milliseconds();
    work();
    times.push_back(1e3 * bench::seconds_since(begin));
    processor.push_back(processor_milliseconds() - used);
  }
  std::sort(times.begin(), times.end());
  Json result = {{"median", times[times.size() / 2]},
                 {"min", times.front()},
                 {"processor", *std::min_element(processor.begin(), processor.end())}};
  if (group != nullptr) {
    result["sums"] = communication(job, sums, without_norms(ranks));
    result["norms"] = communication(job, norms, in_norms());
  }
  return result;
}

bilevel::LabelledImages images(const Job& job, uint64_t seed) {
  return bilevel::nas::draw_images({.samples = job.batch, .height = 32, .width = 32, .seed = seed},
                                   at::kFloat);
}

Json measure_search(const Job& job) {
  bilevel::nas::SupernetOptions options;
  options.channels = job.channels;
  options.cells = job.cells;
  bilevel::nas::SupernetProblem supernet(
      bilevel::nas::Supernet(bilevel::nas::make_space("nasbench201"), options),
      bilevel::nas::image_source(images(job, 1)), bilevel::nas::image_source(images(job, 2)), at::kFloat);
  supernet.divide(job.ranks);
  // As `search` has it: by the supernet's tape.
  std::unique_ptr<bilevel::nas::SupernetEngine> engine = bilevel::nas::tape_supernet(supernet);
  if (job.ranks.group) {
    engine = std::make_unique<bilevel::nas::RankedSupernet>(supernet, std::move(engine));
  }
  const bilevel::WithWeightDecay problem(*engine, 5e-4);
  bilevel::AlgorithmSettings settings;
  settings.inner.optimizer = "nesterov";
  settings.inner.steps = job.steps;
  settings.inner.rate = 0.01;
  settings.inner.clip_norm = 5;
  settings.outer.rate = 3e-4;
  settings.hypergradient.terms = job.terms;
  settings.hypergradient.curvature.difference_cross = true;
  const auto rule = bilevel::make_algorithm("idarts", settings);
  bilevel::Oracle oracle(problem);
  bilevel::Streams streams(1, problem.inner_samples(), problem.outer_samples());
  bilevel::AlgorithmState state = rule->init(oracle, problem.initial_outer(1), problem.initial_inner(1));
  Json result = measure(job, [&] { rule->step(oracle, state, streams); });
  result["weights"] = state.inner.w.numel();
  result["alpha"] = state.x.numel();
  return result;
}

Json measure_train(const Job& job) {
  const bilevel::nas::SearchSpace space = bilevel::nas::make_space("nasbench201");
  const bilevel::nas::Network network(
      space,
      bilevel::nas::parse_genotype(
          space, "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|avg_pool_3x3~1|nor_conv_1x1~2|"),
      {.channels = job.channels, .cells = job.cells});
  const bilevel::LabelledImages drawn = images(job, 1);
  const bilevel::DeviceImages bytes((drawn.images * 40 + 128).clamp(0, 255).to(at::kByte), drawn.labels,
                                    {128, 128, 128}, {50, 50, 50}, at::kFloat);
  bilevel::nas::TrainOptions options;
  options.batch = job.batch;
  options.epochs = 1'000'000;
  const bilevel::nas::Training training(network, bytes, bytes, options, job.ranks);
  bilevel::nas::TrainState state = training.start();
  bilevel::nas::TrainHooks one_step;
  one_step.interrupted = [] { return true; };
  Json result = measure(job, [&] {
    state.history.resize(static_cast<size_t>(state.inner.step));  // an epoch is a step, and is not tested
    training.run(state, one_step);
  });
  result["weights"] = state.inner.w.numel();
  return result;
}

Json measure_cleaning(const Job& job) {
  bilevel::SyntheticCleaningOptions drawn;
  drawn.data.classes = 10;
  drawn.data.features = job.features;
  drawn.samples = drawn.valid_samples = job.examples;
  const bilevel::WeightedSoftmax whole(bilevel::draw_cleaning_data(drawn, 1), 1e-3, at::kFloat);
  std::optional<bilevel::DistributedProblem> sum;
  if (job.ranks.group) sum.emplace(whole, job.ranks.group);
  const bilevel::Problem& problem = sum ? static_cast<const bilevel::Problem&>(*sum) : whole;
  bilevel::AlgorithmSettings settings;
  settings.inner.steps = 20;
  settings.inner.rate = 0.1;
  settings.hypergradient.terms = 10;
  const auto rule = bilevel::make_algorithm("aid-cg", settings);
  bilevel::Oracle oracle(problem);
  bilevel::Streams streams(1, problem.inner_samples(), problem.outer_samples());
  bilevel::AlgorithmState state = rule->init(oracle, problem.initial_outer(1), problem.initial_inner(1));
  Json result = measure(job, [&] { rule->step(oracle, state, streams); });
  result["weights"] = state.inner.w.numel();
  return result;
}

Json measure_sums(const Job& job) {
  Json table = Json::array();
  if (!job.ranks.group) return table;
  for (const int64_t numbers : {1, 100, 10'000, 100'000, 1'700'000}) {
    Tensor values = at::ones({numbers}, at::kFloat);
    const Json time = measure(job, [&] {
      values.fill_(1);
      job.ranks.group->sum_(values);
    });
    table.push_back({{"floats", numbers}, {"median", time["median"]}, {"min", time["min"]}});
  }
  return table;
}

int run(int argc, char** argv) {
  bench::Options options(argc, argv);
  const bench::Machine machine(options);
  Job job{.channels = options.integer("channels", 16),
          .cells = options.integer("cells", 1),
          .batch = options.integer("batch", 64),
          .steps = options.integer("steps", 4),
          .terms = options.integer("terms", 2),
          .examples = options.integer("examples", 5000),
          .features = options.integer("features", 784),
          .repeat = options.integer("repeat", 5),
          .ranks = {}};
  const std::string only = options.text("only", "");
  const bool global_norms = options.text("norms", "global") == "global";
  options.finish();
  const bilevel::RankPlace place = bilevel::rank_from_environment();
  if (!place.alone()) {
    job.ranks = bilevel::nas::divided_among(ProcessGroup::join(place, {}), global_norms);
  }
  Json result = {{"ranks", place.size}, {"threads", machine.threads}};
  const auto part = [&](const char* name, Json (*work)(const Job&)) {
    if (only.empty() || only == name) result[name] = work(job);
  };
  part("sums", measure_sums);
  part("cleaning", measure_cleaning);
  part("train", measure_train);
  part("search", measure_search);
  if (place.rank == 0) fmt::print("{}\n", result.dump());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bilevel::restart_with_best_settings(argv);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_ranks: {}\n", error.what());
    return 1;
  }
}
