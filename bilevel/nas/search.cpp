#include "bilevel/nas/search.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bilevel/algorithms/darts.h"
#include "bilevel/algorithms/double_loop.h"
#include "bilevel/algorithms/failure.h"
#include "bilevel/algorithms/resumable.h"
#include "bilevel/core/errors.h"
#include "bilevel/core/finite.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/nas/captured_supernet.h"
#include "bilevel/nas/collapse.h"
#include "bilevel/nas/perturbation.h"
#include "bilevel/nas/random_search.h"
#include "bilevel/nas/ranked_supernet.h"
#include "bilevel/nas/tape/taped_supernet.h"
#include "bilevel/run/not_finite.h"

namespace bilevel::nas {

void SearchState::begin_epoch() { loss = norm = ratio = {.sum = at::zeros({}, algorithm.x.options())}; }

std::string_view name_of(SearchEnd end) {
  switch (end) {
    case SearchEnd::not_run:
      return "not run";
    case SearchEnd::epochs_done:
      return "all epochs done";
    case SearchEnd::collapse:
      return "stopped before a collapse";
    case SearchEnd::interrupted:
      return "interrupted";
    case SearchEnd::failed:
      return "failed";
  }
  return "?";
}

Search::Search(SupernetProblem& problem, const SearchOptions& options, const Benchmark* benchmark,
               MakeSearchRule own_rule)
    : supernet_(problem), options_(options), benchmark_(benchmark), own_rule_(std::move(own_rule)) {
  options_.validate();
  if (options_.method == "random") {
    throw OptionError(named("method", "random") +
                      " trains cells one by one and has no supernet to search in: call random_search()");
  }
  for (const auto& [what, samples] :
       {std::pair{"training", problem.inner_samples()}, std::pair{"validation", problem.outer_samples()}}) {
    if (samples < options_.batch) {
      throw OptionError(
          fmt::format("{}: there are only {} {} images; give a smaller batch or more images ({})",
                      named("batch", fmt::to_string(options_.batch)), samples, what, named("train_size")));
    }
  }
  if (options_.stop == "skips") {
    const auto& all = problem.supernet().space().operations;
    if (std::find(all.begin(), all.end(), "skip_connect") == all.end()) {
      throw OptionError(fmt::format("{}: the space {} has no skip_connect to count; use eigenvalue",
                                    named("stop", "skips"), problem.supernet().space().name));
    }
  }
  if (benchmark_ != nullptr) benchmark_->require_space(problem.supernet().space());
  options_.inner.steps = weight_steps(options_);
  steps_per_epoch_ = alpha_steps_an_epoch(options_, problem.inner_samples());
  options_.inner.schedule.kind = ScheduleKind::cosine;
  options_.inner.schedule.total_steps =
      std::max<int64_t>(1, options_.epochs * steps_per_epoch_ * options_.inner.steps);
  options_.inner.schedule.final_fraction = options_.final_rate / options_.inner.rate;
  options_.outer.schedule = alpha_schedule(
      options_, std::max<int64_t>(0, options_.epochs - options_.warmup_epochs) * steps_per_epoch_);
  if (problem.ranks().several()) {
    const auto& group = problem.ranks().group;
    if (options_.batch < group->size()) {
      throw OptionError(fmt::format("{}: {} ranks need an image each; give a larger batch or fewer ranks",
                                    named("batch", fmt::to_string(options_.batch)), group->size()));
    }
    engine_ = std::make_unique<RankedSupernet>(supernet_, options_.tape ? tape_supernet(supernet_) : nullptr);
  } else if (problem.initial_outer(0).is_cuda() && can_capture()) {
    engine_ = capture_supernet(supernet_, options_.batch, options_.tape && tape_is_trusted(supernet_));
  } else if (options_.tape) {
    engine_ = tape_supernet(supernet_);
  }
  const SupernetEngine& engine = engine_ ? *engine_ : supernet_;
  guard_ = make_guard(options_.guard, supernet_, engine);
  const Problem& guarded = guard_ ? static_cast<const Problem&>(*guard_) : engine;
  problem_ = std::make_unique<WithWeightDecay>(guarded, options_.weight_decay);
}

std::unique_ptr<Algorithm> Search::make_rule(double linear_rate) const {
  if (own_rule_) return own_rule_(options_, linear_rate);
  if (options_.method.rfind("darts", 0) == 0 || options_.method == "gdas") {
    DartsOptions darts{.inner = options_.inner, .outer = options_.outer};
    darts.first_order = options_.method != "darts";
    darts.curvature = options_.hypergradient.curvature;
    return std::make_unique<Darts>(darts);
  }
  DoubleLoopOptions loop{.name = options_.method, .inner = options_.inner, .outer = options_.outer};
  loop.warm_start_linear = false;  // another batch is another matrix
  loop.one_batch = true;
  EstimatorSettings settings = options_.hypergradient;
  settings.linear_rate = linear_rate;
  const std::string estimator = options_.method == "cg"          ? "cg"
                                : options_.method == "truncated" ? "truncated"
                                                                 : "neumann";
  return std::make_unique<DoubleLoop>(loop, make_estimator(estimator, settings));
}

SearchState Search::begin() const {
  SearchState state;
  state.linear_rate = options_.hypergradient.linear_rate;
  const Oracle oracle(*problem_);
  state.algorithm =
      make_rule(state.linear_rate)
          ->init(oracle, problem_->initial_outer(options_.seed), problem_->initial_inner(options_.seed));
  state.begin_epoch();
  return state;
}

// What an epoch changes: the guard, the temperature of the sampling, and the series' rate where it is
// measured.
void Search::set_epoch(SearchState& state, Oracle& oracle, Streams& streams) {
  guard_value_ =
      guard_ ? guard_->set_epoch(
                   {.epoch = state.epoch, .epochs = options_.epochs, .resting = options_.warmup_epochs})
             : std::numeric_limits<double>::quiet_NaN();
  if (options_.method == "gdas") {
    const double along =
        options_.epochs > 1 ? static_cast<double>(state.epoch) / static_cast<double>(options_.epochs - 1) : 0;
    supernet_.set_sampling(
        Sampling::gumbel, options_.temperature + (options_.final_temperature - options_.temperature) * along);
  } else {
    supernet_.set_sampling(options_.method == "random-sharing" ? Sampling::uniform : Sampling::softmax);
  }
  if (state.step == 0 && options_.linear_rate_auto) {
    const auto at_point =
        oracle.linearize(state.algorithm.inner.w, state.algorithm.x, streams.inner("curvature"));
    const CurvatureOptions& curvature = options_.hypergradient.curvature;
    const MatrixProduct product = [&](const Tensor& v) {
      const Tensor hv = curvature.kind == "gauss-newton" ? at_point->gauss_newton(v) : at_point->hessian(v);
      return curvature.damping > 0 ? at::add(hv, v, curvature.damping) : hv;
    };
    SpectrumOptions lanczos;
    lanczos.dense_below = 0;
    lanczos.relative_tolerance = 0.05;
    lanczos.max_products = 20;
    lanczos.seed = options_.seed;
    const Tensor& w = state.algorithm.inner.w;
    const Spectrum spectrum = extreme_eigenvalues(product, w.numel(), w.options(), lanczos);
    const double largest = std::max(std::abs(spectrum.largest), std::abs(spectrum.smallest));
    state.linear_rate = largest > 0 && std::isfinite(largest) ? 1 / largest : options_.inner.rate;
  }
  rule_ = make_rule(state.linear_rate);
}

void Search::step(SearchState& state, Oracle& oracle, Streams& streams) {
  AlgorithmState& now = state.algorithm;
  if (state.epoch < options_.warmup_epochs || !find_search_method(options_.method).moves_alpha) {
    now.inner = warm_inner_steps(oracle, now, streams, options_.inner).final;
    ++now.iteration;
    return;
  }
  // What a guard adds to f is no part of what is measured.
  const Penalty penalty = guard_ ? guard_->penalty(now.x) : Penalty{};
  IterationSummary summary = rule_->step(oracle, now, streams);
  if (penalty.gradient.defined()) {
    if (summary.outer_loss.defined()) summary.outer_loss = summary.outer_loss - penalty.value;
    if (summary.direction.defined()) summary.direction = summary.direction - penalty.gradient;
    if (summary.direct.defined()) summary.direct = summary.direct - penalty.gradient;
  }
  ++state.statuses[std::string(bilevel::name_of(summary.status))];
  if (summary.outer_loss.defined()) state.loss.add(summary.outer_loss);
  if (summary.direction.defined()) state.norm.add(summary.direction.norm());
  if (summary.direct.defined() && options_.method != "gdas" && options_.method != "darts-first-order") {
    state.ratio.add((summary.direction - summary.direct).norm() / summary.direct.norm().clamp_min(1e-30));
  }
}

// What a run has beside its state.
struct Search::Run {
  Run(const Search& search, SearchState from, const SearchHooks& its_hooks)
      : state(std::move(from)),
        hooks(its_hooks),
        oracle(*search.problem_),
        before(state.counts),
        streams(
            search.options_.seed, search.problem_->inner_samples(), search.problem_->outer_samples(),
            {.inner_batch = search.options_.batch, .outer_batch = search.options_.batch, .by_epochs = true}),
        loop(its_hooks) {
    streams.seek(state.streams);
    for (const EpochRecord& r : state.history) add_signs(r);
  }

  OracleCounts counts() const {
    OracleCounts all = before;
    all += oracle.counts();
    return all;
  }
  void save() {
    state.streams = streams.positions();
    state.counts = counts();
    loop.save(state);
  }
  double lap() {  // seconds since the last one
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - lap_began).count();
    lap_began = now;
    return seconds;
  }
  void add_signs(const EpochRecord& r) {
    signs.eigenvalues.push_back(r.eigenvalue);
    signs.skips.push_back(r.skips);
  }

  SearchState state;
  const SearchHooks& hooks;
  Oracle oracle;
  OracleCounts before;  // of the runs that the state comes from
  Streams streams;
  std::chrono::steady_clock::time_point lap_began = std::chrono::steady_clock::now();
  Resumable<SearchHooks> loop;
  CollapseSigns signs;
  std::optional<Collapse> collapse;  // as it was after the last epoch: those of the warm-up end no search
};

// A step, where what is not finite ends the run with its place.
void Search::step_of(Run& run) {
  SearchState& state = run.state;
  try {
    step(state, run.oracle, run.streams);
  } catch (const NotFiniteError& error) {
    throw NotFiniteRun(
        fmt::format("{}: epoch {}, step {} of {}: {} {} Options: a lower {} or {}, or clipping ({})",
                    options_.method, state.epoch + 1, state.step + 1, steps_per_epoch_, marked_message(error),
                    // Other ranks may be at another place: nothing can be computed with them any more.
                    supernet_.ranks().group
                        ? ""
                        : curvature_on_batch(*problem_, state.algorithm, run.streams.inner("curvature")),
                    named("inner_rate"), named("alpha_rate"), named("inner_clip")));
  }
  ++state.step;
  state.seconds += run.lap();
  state.counts = run.counts();
  if (run.hooks.step) run.hooks.step(state, steps_per_epoch_);
}

// The steps that an epoch has left, and its end.
Search::EpochEnd Search::run_epoch(Run& run) {
  SearchState& state = run.state;
  Oracle& oracle = run.oracle;
  set_epoch(state, oracle, run.streams);
  NoWaiting until_the_epoch_ends(oracle.finite());
  const auto require_finite = [&] {
    if (until_the_epoch_ends.all_finite_so_far()) return;
    throw NotFiniteRun(fmt::format(
        "{}: weights, alpha or a hypergradient left the finite numbers in epoch {}. Lower "
        "{} or {}, or clip ({})",
        options_.method, state.epoch + 1, named("inner_rate"), named("alpha_rate"), named("inner_clip")));
  };
  while (state.step < steps_per_epoch_) {
    step_of(run);
    const bool last_step = state.epoch + 1 == options_.epochs && state.step == steps_per_epoch_;
    if (std::string reason = failed_solves(state, last_step); !reason.empty()) {
      return {SearchEnd::failed, std::move(reason)};
    }
    const bool stops = run.loop.interrupted();
    if (stops || (state.step < steps_per_epoch_ && run.loop.save_due())) {
      require_finite();
      run.save();
    }
    if (stops) return {SearchEnd::interrupted};
  }
  require_finite();
  end_epoch(run);
  return {SearchEnd::epochs_done};
}

// What is saved is the state before the next epoch's first step.
void Search::end_epoch(Run& run) {
  SearchState& state = run.state;
  EpochRecord r = record(state, run.streams);
  state.begin_epoch();
  run.add_signs(r);
  if (state.epoch >= options_.warmup_epochs) run.collapse = find_collapse(options_, run.signs);
  if (run.hooks.epoch) run.hooks.epoch(r);
  state.history.push_back(std::move(r));
  ++state.epoch;
  state.step = 0;
  run.save();
  run.lap();
}

// By what was asked for in place of the largest weights, if anything was.
void Search::choose_genotype(Run& run, SearchSummary& summary) {
  const SearchState& state = run.state;
  if (options_.method == "random-sharing") {
    summary.genotype = best_of_samples(state, run.hooks);
    return;
  }
  if (options_.select != "perturbation") return;
  if (run.collapse) {
    summary.notes.push_back(
        "--select perturbation asks the weights of the last epoch, with the alpha of the chosen one");
  }
  SearchState asked = state;
  asked.algorithm.x = summary.alpha.to(state.algorithm.x.options());
  if (const auto selected = select(asked, run.oracle, run.streams, run.hooks)) {
    summary.genotype = *selected;
  } else {
    summary.end = SearchEnd::interrupted;
  }
}

SearchSummary Search::run(SearchState state, const SearchHooks& hooks) {
  Run run(*this, std::move(state), hooks);
  if (run.state.epoch > options_.warmup_epochs) run.collapse = find_collapse(options_, run.signs);
  EpochEnd last{SearchEnd::epochs_done};
  while (run.state.epoch < options_.epochs && !run.collapse) {
    last = run_epoch(run);
    if (last.end != SearchEnd::epochs_done) break;
  }
  SearchSummary summary;
  summary.end = last.end;
  summary.reason = last.reason;
  if (run.collapse && summary.end == SearchEnd::epochs_done) {
    summary.end = SearchEnd::collapse;
    summary.reason = run.collapse->reason;
  }
  const auto epochs = static_cast<int64_t>(run.state.history.size());
  summary.chosen_epoch = run.collapse ? run.collapse->return_to + 1 : epochs;
  describe_chosen(run.state, summary);
  if (summary.end == SearchEnd::epochs_done || summary.end == SearchEnd::collapse) {
    choose_genotype(run, summary);
  }
  supernet_.set_sampling(Sampling::softmax);
  summary.history = run.state.history;
  summary.statuses = run.state.statuses;
  summary.counts = run.counts();
  summary.seconds = run.state.seconds + run.lap();
  return summary;
}

Genotype Search::best_of_samples(const SearchState& state, const SearchHooks& hooks) const {
  const SearchSpace& space = supernet_.supernet().space();
  const auto loss = [&](const Genotype& cell) {
    return supernet_
        .score(state.algorithm.inner.w, genotype_mixture(space, cell, state.algorithm.x.options()),
               supernet_.valid(), options_.batch, options_.score_images)
        .loss;
  };
  return best_random_cell(space, options_.samples, options_.seed, loss, [&](int64_t tried, double least) {
    if (!hooks.message) return;
    hooks.message(fmt::format("ranking random cells: {} of {}, best validation loss {:.4f}", tried,
                              options_.samples, least));
  });
}

std::optional<Genotype> Search::select(const SearchState& state, Oracle& oracle, Streams& streams,
                                       const SearchHooks& hooks) {
  PerturbationSelection selection(supernet_.supernet().space(), state.algorithm.x, options_.seed);
  AlgorithmState tuned = state.algorithm;
  InnerOptions inner = options_.inner;
  inner.schedule = {};  // at the rate that the search ended with
  inner.rate =
      std::max(options_.final_rate, options_.inner.rate * options_.inner.schedule.factor(tuned.inner.step));
  const auto loss = [&](const Tensor& mixture) {
    return supernet_.score(tuned.inner.w, mixture, supernet_.valid(), options_.batch, options_.score_images)
        .loss;
  };
  while (!selection.done()) {
    const std::string choice = selection.choose_next(loss);
    if (hooks.message) hooks.message(choice);
    supernet_.set_mixture(selection.mixture());
    for (int64_t i = 0; i < options_.tune_epochs * steps_per_epoch_ && !selection.done(); ++i) {
      tuned.inner = warm_inner_steps(oracle, tuned, streams, inner).final;
      if (hooks.interrupted && hooks.interrupted()) return std::nullopt;
    }
  }
  return selection.genotype();
}

}  // namespace bilevel::nas
