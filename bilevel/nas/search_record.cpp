// What a search measures of itself and says at the end of an epoch and of the whole.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/role_swap.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/distributed/distributed_problem.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/nas/search.h"

namespace bilevel::nas {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

Tensor to_host(const Tensor& t) {
  return t.detach().to(at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
}

// Mean weight of every operation over the rows that choose operations.
std::vector<double> mean_weights(const SearchSpace& space, const Tensor& mixture) {
  Tensor sum = at::zeros({static_cast<int64_t>(space.operations.size())}, at::kDouble);
  int64_t rows = 0;
  for (const AlphaBlock& block : space.alpha) {
    if (block.shares || block.choices != sum.numel() || block.name.rfind("parents", 0) == 0 ||
        block.name == "output")
      continue;
    sum += space.block(mixture, block.name).sum(0);
    rows += block.rows;
  }
  const Tensor mean = sum / static_cast<double>(rows);
  return {mean.data_ptr<double>(), mean.data_ptr<double>() + mean.numel()};
}

}  // namespace

void RunningMean::add(const Tensor& value) {
  sum = sum + value.detach();
  ++count;
}
double RunningMean::value() const {
  return count > 0 ? sum.item<double>() / static_cast<double>(count) : nothing;
}

std::string Search::failed_solves(const SearchState& state, bool at_end) const {
  const bool needs_positive = options_.method == "cg";
  const SolveTally solves = tally_of(state.statuses, needs_positive);
  if (at_end ? !solves.most_failed() : !solves.ends_run()) return "";
  return fmt::format(
      "{} of {} linear solves failed ({}), so that alpha does not follow the hypergradient: {}",
      solves.failed, solves.all, statuses_text(state.statuses),
      needs_positive ? "take --curvature gauss-newton, a --damping, or --method idarts"
                     : "take --linear-rate auto, or a smaller one");
}

double Search::dominant_eigenvalue(const SearchState& state, Streams& streams) const {
  if (options_.eigenvalue_products == 0 || !find_search_method(options_.method).moves_alpha) return nothing;
  const Tensor &x = state.algorithm.x, &w = state.algorithm.inner.w;
  const Batch batch = streams.outer("eigenvalue");
  SpectrumOptions lanczos;
  lanczos.dense_below = 0;
  lanczos.relative_tolerance = 0.02;
  lanczos.max_products = options_.eigenvalue_products;
  lanczos.seed = options_.seed;
  if (const MatrixProduct product = engine_ ? engine_->outer_curvature(w, x, batch) : nullptr) {
    return extreme_eigenvalues(product, x.numel(), x.options(), lanczos).largest;
  }
  const RoleSwap swapped(supernet_);
  std::optional<DistributedProblem> of_ranks;
  if (supernet_.ranks().group) of_ranks.emplace(swapped, supernet_.ranks().group, Division::by_problem);
  Oracle oracle(of_ranks ? static_cast<const Problem&>(*of_ranks) : swapped);
  const auto at_point = oracle.linearize(x, w, batch);
  const MatrixProduct product = [&](const Tensor& v) { return at_point->hessian(v); };
  return extreme_eigenvalues(product, x.numel(), x.options(), lanczos).largest;
}

EpochRecord Search::record(const SearchState& state, Streams& streams) const {
  const SearchSpace& space = supernet_.supernet().space();
  EpochRecord r;
  r.epoch = state.epoch + 1;
  r.alpha = to_host(state.algorithm.x);
  const Tensor mixture = mixture_weights(space, r.alpha);
  r.genotype = derive_genotype(space, mixture);
  r.operation_shares = operation_shares(space, r.genotype);
  r.operation_weights = mean_weights(space, mixture);
  r.skips = skip_count(r.genotype);
  r.search_loss = state.loss.value();
  r.direction_norm = state.norm.value();
  r.implicit_over_direct = state.ratio.value();
  const auto score =
      supernet_.score(state.algorithm.inner.w, supernet_.shifted(mixture.to(state.algorithm.x.options())),
                      supernet_.valid(), options_.batch, options_.score_images);
  r.valid_loss = score.loss;
  r.valid_accuracy = score.accuracy;
  r.eigenvalue = dominant_eigenvalue(state, streams);
  r.guard = guard_value_;
  r.rate = options_.inner.rate * options_.inner.schedule.factor(state.algorithm.inner.step);
  r.linear_rate = state.linear_rate > 0 ? state.linear_rate : r.rate;
  r.seconds = state.seconds;
  if (benchmark_ == nullptr) return r;
  try {
    const BenchmarkEntry entry = benchmark_->query(space, r.genotype);
    r.benchmark = entry.values;
    r.regret = entry.regret;
  } catch (const std::runtime_error& missing) {  // a cell that the table lacks is no reason to end a search
    r.benchmark_note = missing.what();
  }
  return r;
}

void Search::describe_chosen(const SearchState& state, SearchSummary& summary) const {
  const SearchSpace& space = supernet_.supernet().space();
  if (summary.chosen_epoch > 0) {
    const EpochRecord& chosen = state.history[static_cast<size_t>(summary.chosen_epoch) - 1];
    summary.alpha = chosen.alpha;
    summary.genotype = chosen.genotype;
  } else {
    summary.alpha = to_host(state.algorithm.x);
    summary.genotype = derive_genotype(space, mixture_weights(space, summary.alpha));
  }
  summary.mixture = mixture_weights(space, summary.alpha);
}

}  // namespace bilevel::nas
