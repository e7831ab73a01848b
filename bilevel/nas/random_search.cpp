#include "bilevel/nas/random_search.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/core/errors.h"
#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/nas/train.h"
#include "bilevel/run/not_finite.h"

namespace bilevel::nas {
namespace {

constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

EpochRecord record_of(const RandomSearch& search, const Benchmark* benchmark, const Genotype& genotype) {
  EpochRecord r;
  r.genotype = genotype;
  r.operation_shares = operation_shares(search.space, genotype);
  r.operation_weights = r.operation_shares;
  r.skips = skip_count(genotype);
  r.search_loss = r.direction_norm = r.eigenvalue = r.implicit_over_direct = r.guard = not_measured;
  r.alpha = at::zeros({search.space.alpha_size()}, at::kDouble);
  r.rate = search.training.rate;
  if (benchmark == nullptr) return r;
  try {
    const BenchmarkEntry entry = benchmark->query(search.space, genotype);
    r.benchmark = entry.values;
    r.regret = entry.regret;
  } catch (const std::runtime_error& missing) {
    r.benchmark_note = missing.what();
  }
  return r;
}

}  // namespace

Genotype best_random_cell(const SearchSpace& space, int64_t samples, uint64_t seed,
                          const std::function<double(const Genotype&)>& loss,
                          const std::function<void(int64_t, double)>& tried) {
  Random random(named_seed(seed, "samples"));
  Genotype best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < samples; ++i) {
    const Genotype candidate = random_genotype(space, random);
    const double found = loss(candidate);
    if (std::isfinite(found) && found < least) {
      best = candidate;
      least = found;
    }
    if (tried) tried(i + 1, least);
  }
  if (!std::isfinite(least)) {
    throw NotFiniteRun(
        fmt::format("none of {} random cells has a finite validation loss with the shared weights: lower {}",
                    samples, named("inner_rate")));
  }
  return best;
}

SearchState begin_random_search(const RandomSearch& search) {
  SearchState state;
  state.algorithm.x = at::zeros({search.space.alpha_size()}, at::kDouble);
  state.algorithm.inner.w = at::zeros({0}, at::kDouble);
  state.begin_epoch();
  return state;
}

SearchSummary random_search(const RandomSearch& search, const Benchmark* benchmark, SearchState state,
                            const SearchHooks& hooks) {
  require_at_least("samples", search.samples, 1);
  SearchSummary summary;
  summary.end = SearchEnd::epochs_done;
  const auto begin = std::chrono::steady_clock::now();
  const double before = state.seconds;
  Random random(named_seed(search.seed, "samples"));
  for (int64_t i = 0; i < search.samples; ++i) {
    const Genotype genotype = random_genotype(search.space, random);
    if (i < static_cast<int64_t>(state.history.size())) continue;
    const Network network(search.space, genotype, search.network);
    TrainOptions options = search.training;
    options.seed = mix_seeds(search.seed, static_cast<uint64_t>(i));
    const Training training(network, search.train, search.valid, options, search.ranks);
    TrainState trained = training.start();
    TrainHooks of_training;
    of_training.interrupted = hooks.interrupted;
    of_training.progress = [&](const TrainProgress& p) {
      if (!hooks.message) return;
      hooks.message(fmt::format("cell {} of {}: epoch {}/{}, step {}/{}, loss {:.3f}", i + 1, search.samples,
                                p.epoch, p.epochs, p.step, p.steps, p.loss));
    };
    const bool done = training.run(trained, of_training);
    state.seconds = before + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!done) {
      summary.end = SearchEnd::interrupted;
      if (hooks.save) hooks.save(state);
      break;
    }
    EpochRecord r = record_of(search, benchmark, genotype);
    r.epoch = i + 1;
    r.valid_loss = not_measured;
    r.valid_accuracy = trained.history.back().test_accuracy;  // its test set is the validation half
    r.seconds = state.seconds;
    if (hooks.epoch) hooks.epoch(r);
    state.history.push_back(std::move(r));
    state.epoch = i + 1;
    if (hooks.save) hooks.save(state);
  }
  double best = -1;
  for (const EpochRecord& r : state.history) {
    if (!(r.valid_accuracy > best)) continue;
    best = r.valid_accuracy;
    summary.genotype = r.genotype;
    summary.chosen_epoch = r.epoch;
  }
  if (state.history.empty()) {
    Random first(named_seed(search.seed, "samples"));
    summary.genotype = random_genotype(search.space, first);
  }
  summary.alpha = at::zeros({search.space.alpha_size()}, at::kDouble);
  summary.mixture = genotype_mixture(search.space, summary.genotype, summary.alpha.options());
  summary.history = state.history;
  summary.seconds = state.seconds;
  return summary;
}

}  // namespace bilevel::nas
