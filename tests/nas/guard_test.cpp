// Guards: each with every method in every space composes or is refused, goes on to the same bits, and with
// strength 0 is no guard, to the bit.

#include "bilevel/nas/guards/guard.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/nas/guards/auxiliary_skip.h"
#include "bilevel/nas/guards/beta_decay.h"
#include "bilevel/nas/guards/smoothing.h"
#include "bilevel/nas/search.h"
#include "bilevel/nas/search_checkpoint.h"
#include "bilevel/nas/synthetic_images.h"
#include "tests/messages.h"
#include "tests/nas/run_search.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::floats;
using test::message;
using ::testing::HasSubstr;

SupernetProblem tiny_problem(const std::string& space, const at::TensorOptions& tensors,
                             const GuardOptions& guard = {}) {
  SupernetOptions options;
  options.channels = guard.name == "partial-channels" ? 8 : 2;  // so that a fourth of them can be halved
  options.partial = guard.partial();
  options.cells = 1;
  options.height = options.width = 4;
  options.classes = 2;
  SyntheticImages images{.samples = 8, .height = 4, .width = 4, .classes = 2, .noise = 0.3, .seed = 1};
  SyntheticImages others = images;
  others.seed = 2;
  return {Supernet(make_space(space), options), image_source(draw_images(images, tensors)),
          image_source(draw_images(others, tensors)), tensors};
}

SearchOptions tiny_options(const SupernetProblem& problem, const std::string& method) {
  SearchOptions options = default_search_options(problem.supernet().space(), method);
  options.guard = {};
  options.epochs = 2;
  options.alpha_steps = 2;
  options.batch = 4;
  options.inner.steps = 2;
  options.hypergradient.terms = 1;
  // So that it converges at this size, where the Hessian is far from positive.
  options.hypergradient.linear_rate = 1e-4;
  if (method == "idarts") options.hypergradient.curvature.kind = "gauss-newton";
  options.hypergradient.truncate = 2;
  options.outer.rate = 0.01;
  options.eigenvalue_products = 0;
  options.seed = 5;
  return options;
}

SearchSummary run_in_two_parts(SupernetProblem& problem, const SearchOptions& options) {
  Search first(problem, options, nullptr);
  int64_t steps = 0;
  Checkpoint saved;
  SearchHooks hooks;
  hooks.step = [&](const SearchState&, int64_t) { ++steps; };
  hooks.interrupted = [&] { return steps == first.steps_per_epoch() + 1; };
  hooks.save = [&](const SearchState& state) { put_search(saved = {}, state); };
  EXPECT_EQ(first.run(first.begin(), hooks).end, SearchEnd::interrupted);
  Search second(problem, options, nullptr);
  return second.run(search_state(saved, problem.supernet().space(), at::kCPU), {});
}

// Made once for all guards.
const SearchSummary& bare_search(SupernetProblem& problem, const std::string& method) {
  static std::map<std::pair<std::string, std::string>, SearchSummary> made;
  const std::string size =
      fmt::format("{} {}", problem.supernet().space().name, problem.supernet().options().channels);
  const std::pair<std::string, std::string> key(size, method);
  if (made.count(key) == 0) made[key] = run_search(problem, tiny_options(problem, method));
  return made[key];
}

struct GuardCase {
  std::string guard, space;
};
std::vector<GuardCase> all_cases() {
  std::vector<GuardCase> cases;
  for (const GuardKind& kind : guard_kinds()) {
    for (const std::string& space : space_names()) cases.push_back({kind.name, space});
  }
  return cases;
}

class EveryGuard : public ::testing::TestWithParam<GuardCase> {};

TEST_P(EveryGuard, ComposesWithEveryMethodOrIsRefusedByName) {
  const auto& [guard, space] = GetParam();
  const GuardOptions full{guard, find_guard(guard).strength}, nothing{guard, 0};
  SupernetProblem problem = tiny_problem(space, floats(), full);
  SupernetProblem plain = tiny_problem(space, floats(), nothing);
  for (const SearchMethod& method : search_methods()) {
    SCOPED_TRACE(method.name);
    SearchOptions options = tiny_options(problem, method.name);
    options.guard = full;
    if (!method.moves_alpha) {
      EXPECT_THAT(message([&] { const Search search(problem, options, nullptr); }),
                  HasSubstr("guard = " + guard + ": " + method.name + " has no alpha"));
      continue;
    }
    if (guard == "auxiliary-skip" && space.rfind("nasbench1shot1", 0) == 0) {
      EXPECT_THAT(message([&] { const Search search(problem, options, nullptr); }),
                  HasSubstr("guard = auxiliary-skip: among the operations of " + space +
                            " (maxpool3x3, conv3x3-bn-relu, conv1x1-bn-relu) there is no skip_connect"));
      continue;
    }
    const SearchSummary guarded = run_search(problem, options);
    const SearchSummary& bare = bare_search(plain, method.name);
    options.guard = nothing;
    const SearchSummary without_strength = run_search(plain, options);
    ASSERT_EQ(guarded.end, SearchEnd::epochs_done) << guarded.reason;
    ASSERT_EQ(guarded.history.size(), 2U);
    // The guard acts, and is recorded; with strength 0 it does nothing.
    EXPECT_FALSE(guarded.alpha.equal(bare.alpha));
    EXPECT_TRUE(without_strength.alpha.equal(bare.alpha));
    EXPECT_EQ(without_strength.history.back().valid_loss, bare.history.back().valid_loss);
    EXPECT_EQ(without_strength.history.back().search_loss, bare.history.back().search_loss);
    EXPECT_TRUE(std::isnan(bare.history.back().guard));
    EXPECT_EQ(without_strength.history.back().guard, 0);
    EXPECT_GT(guarded.history.back().guard, 0);

    options.guard = full;
    const SearchSummary in_two_parts = run_in_two_parts(problem, options);
    EXPECT_TRUE(in_two_parts.alpha.equal(guarded.alpha));
    EXPECT_EQ(in_two_parts.history[0].guard, guarded.history[0].guard);
    EXPECT_EQ(in_two_parts.history[1].search_loss, guarded.history[1].search_loss);
    EXPECT_EQ(in_two_parts.history.back().valid_loss, guarded.history.back().valid_loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Guards, EveryGuard, ::testing::ValuesIn(all_cases()), [](const auto& tested) {
  return test::test_name(tested.param.guard + "_" + tested.param.space);
});

TEST(Guards, TheDefaultIsForMethodsThatMoveAlpha) {
  const SearchSpace space = make_space("nasbench201");
  for (const SearchMethod& method : search_methods()) {
    EXPECT_EQ(default_search_options(space, method.name).guard.name,
              method.moves_alpha ? default_guard : "none")
        << method.name;
  }
}

TEST(AlphaSchedule, SumsAreThoseOfItsFactors) {
  for (const Schedule& s : {Schedule{}, Schedule{.kind = ScheduleKind::inverse_sqrt},
                            Schedule{.kind = ScheduleKind::cosine, .total_steps = 20'000},
                            Schedule{.kind = ScheduleKind::linear, .total_steps = 7, .final_fraction = 0.1},
                            Schedule{.kind = ScheduleKind::power, .exponent = 0.75}}) {
    for (const int64_t steps : {0, 1, 9, 20'000}) {
      double sum = 0, squares = 0;
      for (int64_t t = 0; t < steps; ++t) {
        sum += s.factor(t);
        squares += s.factor(t) * s.factor(t);
      }
      EXPECT_NEAR(sum_of_factors(s, steps), sum, 1e-6 * sum) << schedule_kind_name(s.kind);
      EXPECT_NEAR(sum_of_factors(s, steps, 2), squares, 1e-6 * squares) << schedule_kind_name(s.kind);
    }
  }
  const Schedule falling{.kind = ScheduleKind::inverse_sqrt};
  EXPECT_NEAR(sum_of_factors(falling, 1'000'000'000'000), 2e6, 10);  // at once
}

// 25 with 50 epochs of 390 steps at 3e-4; less where alpha goes less far, and never more.
TEST(Guards, TheDefaultStrengthOfBetaDecayGoesWithTheWayOfAlpha) {
  SearchOptions options = default_search_options(make_space("nasbench201"), "darts-first-order");
  EXPECT_EQ(default_guard_strength(options, 25000), 25);
  EXPECT_EQ(default_guard_strength(options, 2500), 2.5);  // 39 steps an epoch
  options.warmup_epochs = 2;
  EXPECT_EQ(default_guard_strength(options, 25000), 24);
  options.warmup_epochs = 30;
  EXPECT_EQ(default_guard_strength(options, 25000), 10);
  options.outer.rate = 6e-4;
  EXPECT_EQ(default_guard_strength(options, 25000), 20);
  options.outer.rate = 0.01;
  EXPECT_EQ(default_guard_strength(options, 25000), 25);
  options.warmup_epochs = 100;
  EXPECT_EQ(default_guard_strength(options, 25000), 0);
  options = default_search_options(make_space("nasbench201"), "darts-first-order");
  options.outer.schedule.kind = ScheduleKind::cosine;  // goes half as far, and a step
  EXPECT_EQ(default_guard_strength(options, 25000), 13);
  options = default_search_options(make_space("nasbench201"), "idarts");  // 97 steps, 30 epochs
  EXPECT_EQ(default_guard_strength(options, 25000), 3.7);
  options.alpha_steps = 390;
  EXPECT_EQ(default_guard_strength(options, 25000), 15);
  options.guard = {"smoothing", 1};
  EXPECT_EQ(default_guard_strength(options, 25), 0.3);
  options.guard = {};
  EXPECT_EQ(default_guard_strength(options, 25000), 0);
}

// Two epochs, but at most a tenth of a search, and none where nothing is guarded.
TEST(Guards, TheWeightsGoAheadOfAlphaUnderBetaDecay) {
  SearchOptions options = default_search_options(make_space("nasbench201"), "darts-first-order");
  const auto warmup = [&](int64_t epochs) {
    options.epochs = epochs;
    return default_warmup_epochs(options);
  };
  EXPECT_EQ(warmup(50), 2);
  EXPECT_EQ(warmup(250), 2);
  EXPECT_EQ(warmup(20), 2);
  EXPECT_EQ(warmup(19), 1);
  EXPECT_EQ(warmup(10), 1);
  EXPECT_EQ(warmup(9), 0);
  options.guard.strength = 0;
  EXPECT_EQ(warmup(50), 0);
  for (const char* name : {"smoothing", "auxiliary-skip", "partial-channels"}) {
    options.guard = {name, find_guard(name).strength};
    EXPECT_EQ(warmup(50), 0) << name;
  }
  options.guard = {};
  EXPECT_EQ(warmup(50), 0);
}

TEST(Guards, NamesAndStrengthsAreChecked) {
  SearchOptions options = default_search_options(make_space("nasbench201"), "idarts");
  options.guard.name = "gamma-decay";
  EXPECT_THAT(
      message([&] { options.validate(); }),
      HasSubstr("guard 'gamma-decay' is unknown: choose from none, beta-decay, smoothing, auxiliary-skip, "
                "partial-channels"));
  options.guard = {"partial-channels", 2.5};
  EXPECT_THAT(message([&] { options.validate(); }),
              HasSubstr("guard_strength = 2.5: partial-channels takes a whole number K"));
  options.guard = {"beta-decay", -1};
  EXPECT_THAT(message([&] { options.validate(); }), HasSubstr("guard_strength = -1: beta-decay takes 0 to"));
}

TEST(BetaDecay, AddsItsClosedFormToTheOuterGradient) {
  for (const std::string& name : space_names()) {
    SCOPED_TRACE(name);
    const SupernetProblem problem = tiny_problem(name, doubles());
    const SearchSpace& space = problem.supernet().space();
    BetaDecay guard(problem, space, 25);
    EXPECT_EQ(guard.set_epoch({.epoch = 0, .epochs = 30}), 0);
    EXPECT_FALSE(guard.penalty(problem.initial_outer(0)).gradient.defined());
    EXPECT_EQ(guard.set_epoch({.epoch = 12, .epochs = 30}), 10);
    // It begins where alpha does.
    EXPECT_EQ(guard.set_epoch({.epoch = 5, .epochs = 30, .resting = 5}), 0);
    EXPECT_EQ(guard.set_epoch({.epoch = 2, .epochs = 30, .resting = 5}), 0);
    EXPECT_EQ(guard.set_epoch({.epoch = 15, .epochs = 30, .resting = 5}), 10);
    const Tensor x = 300 * problem.initial_outer(0), w = problem.initial_inner(0);
    const Batch all;
    const OuterGradients bare = problem.outer_gradients(w, x, all),
                         guarded = guard.outer_gradients(w, x, all);
    int64_t rows = 0;
    for (const AlphaBlock& block : space.alpha) rows += block.rows;
    const Tensor expected = 10.0 / static_cast<double>(rows) * mixture_weights(space, x);
    EXPECT_LT((guarded.x - bare.x - expected).abs().max().item<double>(), 1e-14);
    EXPECT_TRUE(guarded.w.equal(bare.w));
    const OuterGradients in_alpha = guard.outer_gradient_in_outer(w, x, all);
    EXPECT_TRUE(in_alpha.x.equal(guarded.x));
    EXPECT_TRUE(in_alpha.loss.equal(guarded.loss));

    // The gradient belongs to the loss: central differences along a direction.
    const Tensor u = problem.initial_outer(7) / problem.initial_outer(7).norm();
    const double h = 1e-4;
    const double slope =
        (guard.penalty(x + h * u).value - guard.penalty(x - h * u).value).item<double>() / (2 * h);
    EXPECT_NEAR(slope, expected.dot(u).item<double>(), 1e-8);
    EXPECT_NEAR(guard.outer_loss(w, x, all).item<double>(), guarded.loss.item<double>(), 1e-12);
    EXPECT_NEAR((guarded.loss - bare.loss).item<double>(), guard.penalty(x).value.item<double>(), 1e-12);
  }
}

// lambda is 0 in the first epoch, so that both searches are at the same point in the second.
TEST(BetaDecay, IsNoPartOfWhatAnEpochMeasures) {
  SupernetProblem problem = tiny_problem("nasbench201", doubles());
  for (const char* method : {"idarts", "darts", "darts-first-order", "truncated"}) {
    SCOPED_TRACE(method);
    SearchOptions options = tiny_options(problem, method);
    options.alpha_steps = 1;
    options.epochs = 2;
    const SearchSummary bare = run_search(problem, options);
    options.guard = {"beta-decay", 1000};
    const SearchSummary guarded = run_search(problem, options);
    EXPECT_EQ(guarded.history[1].guard, 500);
    EXPECT_TRUE(guarded.history[0].alpha.equal(bare.history[0].alpha));
    EXPECT_FALSE(guarded.history[1].alpha.equal(bare.history[1].alpha));
    EXPECT_NEAR(guarded.history[1].search_loss, bare.history[1].search_loss, 1e-11);
    EXPECT_NEAR(guarded.history[1].direction_norm, bare.history[1].direction_norm, 1e-11);
    if (std::isfinite(bare.history[1].implicit_over_direct)) {
      EXPECT_NEAR(guarded.history[1].implicit_over_direct, bare.history[1].implicit_over_direct, 1e-10);
    }
  }
}

TEST(Smoothing, KeepsEveryRowAMixtureWithinItsBound) {
  const SearchSpace space = make_space("nasbench201");
  const Tensor even = mixture_weights(space, at::zeros({space.alpha_size()}, at::kDouble));  // 0.2 each
  Tensor mean = at::zeros_like(even);
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Tensor rows = space.block(smoothed_mixture(space, even, 0.1, seed), space.alpha[0].name);
    EXPECT_LT((rows.sum(1) - 1).abs().max().item<double>(), 1e-14);
    // 0.1 to 0.3 before the rows are brought to the sum 1.
    EXPECT_LE((std::get<0>(rows.max(1)) / std::get<0>(rows.min(1))).max().item<double>(), 3);
    mean = mean + rows.flatten() / 400;
    const Tensor wild = space.block(smoothed_mixture(space, even, 1, seed), space.alpha[0].name);
    EXPECT_LT((wild.sum(1) - 1).abs().max().item<double>(), 1e-14);
    EXPECT_GE(wild.min().item<double>(), 0);
  }
  EXPECT_LT((mean - 0.2).abs().max().item<double>(), 0.01);  // 0.0029 is the standard deviation of a mean
  EXPECT_TRUE(smoothed_mixture(space, even, 0.1, 3).equal(smoothed_mixture(space, even, 0.1, 3)));
  EXPECT_FALSE(smoothed_mixture(space, even, 0.1, 3).equal(smoothed_mixture(space, even, 0.1, 4)));
}

// alpha = log p is where the softmax is p, so that a bare gradient there is that of a weight step at p.
TEST(Smoothing, ChangesWhereWeightStepsAreTakenAndNothingElse) {
  for (const std::string& name : space_names()) {
    SCOPED_TRACE(name);
    const SupernetProblem problem = tiny_problem(name, doubles());
    const SearchSpace& space = problem.supernet().space();
    Smoothing guard(problem, problem, 0.3);
    EXPECT_DOUBLE_EQ(guard.set_epoch({.epoch = 0, .epochs = 50}), 0.03);  // the published bounds
    EXPECT_DOUBLE_EQ(guard.set_epoch({.epoch = 25, .epochs = 50}), 0.165);
    const Tensor x = 300 * problem.initial_outer(0), w = problem.initial_inner(0);
    Batch batch;
    batch.seed = 11;
    const Tensor p = smoothed_mixture(space, mixture_weights(space, x), 0.165, 11);
    const Tensor expected = problem.inner_gradient(w, p.clamp_min(1e-300).log(), batch);
    const Tensor ours = guard.inner_gradient(w, x, batch);
    EXPECT_LT(test::relative_error(ours, expected), 1e-12);
    EXPECT_GT(test::relative_error(problem.inner_gradient(w, x, batch), expected), 1e-3);
    EXPECT_TRUE(guard.outer_gradients(w, x, batch).x.equal(problem.outer_gradients(w, x, batch).x));
    EXPECT_TRUE(
        guard.inner_gradient_in_outer(w, x, batch).equal(problem.inner_gradient_in_outer(w, x, batch)));
  }
}

// With every edge's own skip at s and the factor at b, the network is that of a skip of s + b.
TEST(AuxiliarySkip, AddsItsFactorToTheSkipOfEveryEdgeInBothLossesAndFallsToNothing) {
  for (const std::string name : {"nasbench201", "darts"}) {
    SCOPED_TRACE(name);
    SupernetProblem problem = tiny_problem(name, doubles());
    const SearchSpace& space = problem.supernet().space();
    const Tensor x = 300 * problem.initial_outer(0), w = problem.initial_inner(0);
    const Batch all;
    const Tensor bare = problem.outer_loss(w, x, all);
    const int64_t skip = name == "darts" ? 3 : 1, choices = static_cast<int64_t>(space.operations.size());
    Tensor mixture = mixture_weights(space, x).clone();
    for (int64_t i = skip; i < mixture.numel(); i += choices) mixture[i] += 0.75;
    {
      AuxiliarySkip guard(problem, problem, 1);
      EXPECT_DOUBLE_EQ(guard.set_epoch({.epoch = 0, .epochs = 50}), 1);
      EXPECT_DOUBLE_EQ(guard.set_epoch({.epoch = 49, .epochs = 50}), 0.02);
      EXPECT_DOUBLE_EQ(guard.set_epoch({.epoch = 1, .epochs = 4}), 0.75);
      const Tensor inner = problem.loss(w, mixture, problem.train().prepare(all)),
                   outer = problem.loss(w, mixture, problem.valid().prepare(all));
      EXPECT_NEAR(guard.inner_loss(w, x, all).item<double>(), inner.item<double>(), 1e-13);
      EXPECT_NEAR(guard.outer_loss(w, x, all).item<double>(), outer.item<double>(), 1e-13);
      EXPECT_NE(outer.item<double>(), bare.item<double>());
    }
    EXPECT_TRUE(problem.outer_loss(w, x, all).equal(bare));  // it went with the guard
  }
  SupernetProblem without = {
      Supernet(make_space("nasbench201", {"none", "nor_conv_1x1"}),
               {.channels = 1, .cells = 1, .height = 4, .width = 4, .classes = 2}),
      image_source(draw_images({.samples = 4, .height = 4, .width = 4, .classes = 2}, doubles())),
      image_source(draw_images({.samples = 4, .height = 4, .width = 4, .classes = 2}, doubles())), doubles()};
  EXPECT_THAT(message([&] { const AuxiliarySkip guard(without, without, 1); }),
              HasSubstr("among the operations of nasbench201 (none, nor_conv_1x1) there is no skip_connect"));
}

}  // namespace
}  // namespace bilevel::nas
