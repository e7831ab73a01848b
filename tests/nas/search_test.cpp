// The search loop: every method in every space, resuming to the same bits, ending before a collapse,
// selecting.

#include "bilevel/nas/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "bilevel/core/errors.h"
#include "bilevel/nas/collapse.h"
#include "bilevel/nas/perturbation.h"
#include "bilevel/nas/search_checkpoint.h"
#include "bilevel/nas/synthetic_images.h"
#include "tests/messages.h"
#include "tests/nas/run_search.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::floats;
using ::testing::HasSubstr;

SupernetProblem small_problem(const std::string& space, const at::TensorOptions& tensors) {
  SupernetOptions options;
  options.channels = 2;
  options.cells = 1;
  options.height = options.width = 8;
  options.classes = 3;
  const SyntheticImages images{.samples = 24, .classes = 3, .noise = 0.3, .seed = 1};
  SyntheticImages others = images;
  others.seed = 2;
  return {Supernet(make_space(space), options), image_source(draw_images(images, tensors)),
          image_source(draw_images(others, tensors)), tensors};
}

SearchOptions small_options(const SupernetProblem& problem, const std::string& method) {
  SearchOptions options = default_search_options(problem.supernet().space(), method);
  options.epochs = 3;
  options.batch = 4;
  options.inner.steps = 2;
  options.hypergradient.terms = 1;
  options.outer.rate = 0.01;
  options.samples = 3;
  options.eigenvalue_products = 4;
  options.seed = 5;
  return options;
}

struct SearchCase {
  std::string space, method;
};

class EverySearch : public ::testing::TestWithParam<SearchCase> {};

TEST_P(EverySearch, FindsAGenotypeAndGoesOnToTheSameBits) {
  SupernetProblem problem = small_problem(GetParam().space, floats());
  const SearchSpace& space = problem.supernet().space();
  const SearchOptions options = small_options(problem, GetParam().method);
  const SearchSummary whole = run_search(problem, options);
  EXPECT_EQ(whole.end, SearchEnd::epochs_done);
  ASSERT_EQ(whole.history.size(), 3U);
  EXPECT_NO_THROW(validate_genotype(space, whole.genotype));
  EXPECT_GT(whole.counts.inner_gradient, 0);
  const bool moves = find_search_method(GetParam().method).moves_alpha;
  const Tensor start = initial_alpha(space, options.seed, floats()).to(at::kDouble);
  EXPECT_EQ(!whole.alpha.equal(start), moves);
  EXPECT_EQ(std::isfinite(whole.history[1].eigenvalue), moves);
  EXPECT_EQ(whole.history[1].direction_norm > 0, moves);  // NaN where alpha rests

  // Interrupted in the middle of the second epoch, saved, read, and gone on with.
  Search first(problem, options, nullptr);
  int64_t steps = 0;
  Checkpoint saved;
  SearchHooks hooks;
  hooks.step = [&](const SearchState&, int64_t) { ++steps; };
  hooks.interrupted = [&] { return steps == first.steps_per_epoch() + 1; };
  hooks.save = [&](const SearchState& state) { put_search(saved = {}, state); };
  EXPECT_EQ(first.run(first.begin(), hooks).end, SearchEnd::interrupted);
  Search second(problem, options, nullptr);
  const SearchSummary rest = second.run(search_state(saved, space, at::kCPU), {});
  EXPECT_TRUE(rest.alpha.equal(whole.alpha));
  EXPECT_EQ(rest.genotype, whole.genotype);
  EXPECT_EQ(rest.history.back().valid_loss, whole.history.back().valid_loss);
  EXPECT_EQ(rest.counts.inner_gradient, whole.counts.inner_gradient);
  EXPECT_EQ(rest.counts.hessian, whole.counts.hessian);
  if (std::isfinite(whole.history[1].search_loss)) {
    EXPECT_EQ(rest.history[1].search_loss, whole.history[1].search_loss);
    EXPECT_EQ(rest.history[1].direction_norm, whole.history[1].direction_norm);
  }

  // Another seed is another search.
  SearchOptions other = options;
  other.seed = 6;
  EXPECT_NE(run_search(problem, other).history.back().valid_loss, whole.history.back().valid_loss);
}

INSTANTIATE_TEST_SUITE_P(
    Searches, EverySearch,
    ::testing::Values(SearchCase{"nasbench201", "idarts"}, SearchCase{"nasbench201", "darts"},
                      SearchCase{"nasbench201", "darts-first-order"}, SearchCase{"nasbench201", "truncated"},
                      SearchCase{"nasbench201", "cg"}, SearchCase{"nasbench201", "gdas"},
                      SearchCase{"nasbench201", "random-sharing"}, SearchCase{"nasbench1shot1-3", "idarts"},
                      SearchCase{"nasbench1shot1-1", "gdas"},
                      SearchCase{"nasbench1shot1-2", "random-sharing"}, SearchCase{"darts", "idarts"},
                      SearchCase{"darts", "darts"}),
    [](const auto& tested) { return test::test_name(tested.param.space + "_" + tested.param.method); });

// The first step is the same; the second sees the same gradient and is half as long at 1 / (k + 1).
TEST(Search, TheRateOfAlphaFallsByItsSchedule) {
  SupernetProblem problem = small_problem("nasbench201", doubles());
  SearchOptions options = small_options(problem, "darts-first-order");
  options.guard = {};
  options.epochs = 2;
  options.alpha_steps = 1;
  options.eigenvalue_products = 0;
  const SearchSummary constant = run_search(problem, options);
  options.outer.schedule = {.kind = ScheduleKind::power, .exponent = 1};
  const SearchSummary falling = run_search(problem, options);
  ASSERT_EQ(falling.history.size(), 2U);
  EXPECT_TRUE(falling.history[0].alpha.equal(constant.history[0].alpha));
  const Tensor whole = constant.history[1].alpha - constant.history[0].alpha;
  const Tensor half = falling.history[1].alpha - falling.history[0].alpha;
  EXPECT_LT(test::relative_error(half, whole / 2), 1e-12);
}

TEST(Search, CountsWhatAlgorithmOneCosts) {
  SupernetProblem problem = small_problem("nasbench201", doubles());
  SearchOptions options = small_options(problem, "idarts");
  options.inner.steps = 2;
  options.hypergradient.terms = 3;
  const SearchSummary s = run_search(problem, options);
  const int64_t steps = 3 * (24 / (4 * 2));
  EXPECT_EQ(s.counts.hessian, 3 * steps);
  EXPECT_EQ(s.counts.outer_gradient, steps);
  EXPECT_EQ(s.counts.cross, 0);                         // by differences:
  EXPECT_EQ(s.counts.inner_gradient, (2 + 2) * steps);  // T weight steps and two gradients in alpha
  options.hypergradient.curvature.difference_cross = false;
  const SearchSummary exact = run_search(problem, options);
  EXPECT_EQ(exact.counts.cross, steps);
  EXPECT_EQ(exact.counts.inner_gradient, 2 * steps);
}

TEST(Search, TheWeightStepsPersistAndWarmUpRestsAlpha) {
  SupernetProblem problem = small_problem("nasbench201", floats());
  SearchOptions options = small_options(problem, "idarts");
  options.warmup_epochs = 2;
  options.epochs = 2;
  Search search(problem, options, nullptr);
  SearchState last;
  SearchHooks hooks;
  hooks.save = [&](const SearchState& state) { last = state; };
  const SearchState first = search.begin();
  search.run(first, hooks);
  EXPECT_TRUE(last.algorithm.x.equal(first.algorithm.x));
  EXPECT_FALSE(last.algorithm.inner.w.equal(first.algorithm.inner.w));
  EXPECT_EQ(last.algorithm.inner.step, 2 * search.steps_per_epoch() * options.inner.steps);
}

TEST(Search, ATrainedSupernetLearnsItsImages) {
  SupernetProblem problem = small_problem("nasbench201", floats());
  SearchOptions options = small_options(problem, "idarts");
  options.epochs = 25;
  options.inner.rate = 0.05;
  options.eigenvalue_products = 0;
  const SearchSummary s = run_search(problem, options);
  EXPECT_GT(s.history.back().valid_accuracy, 80);  // chance is 33
  EXPECT_LT(s.history.back().valid_loss, s.history.front().valid_loss);
}

TEST(Search, AnAutomaticLinearRateIsOneOverTheCurvature) {
  SupernetProblem problem = small_problem("nasbench201", doubles());
  SearchOptions options = small_options(problem, "idarts");
  options.linear_rate_auto = true;
  options.hypergradient.curvature.kind = "gauss-newton";
  options.hypergradient.curvature.damping = 0.1;
  options.epochs = 1;
  const SearchSummary s = run_search(problem, options);
  EXPECT_GT(s.history[0].linear_rate, options.inner.rate);
  EXPECT_LE(s.history[0].linear_rate, 10);  // 1 / damping
}

TEST(Search, SaysWhatIsWrong) {
  SupernetProblem problem = small_problem("nasbench1shot1-3", floats());
  const auto message = [&](const std::function<void(SearchOptions&)>& change) {
    SearchOptions options = small_options(problem, "idarts");
    change(options);
    return test::message([&] { Search(problem, options, nullptr); });
  };
  EXPECT_THAT(message([](auto& o) { o.batch = 100; }), HasSubstr("there are only 24 training images"));
  EXPECT_THAT(message([](auto& o) { o.stop = "skips"; }), HasSubstr("no skip_connect"));
  EXPECT_THAT(message([](auto& o) { o.stop = "soon"; }),
              HasSubstr("stop 'soon' is unknown: choose from none, eigenvalue, skips"));
  EXPECT_THAT(message([](auto& o) { o.method = "magic"; }),
              HasSubstr("method 'magic' is unknown: choose from idarts"));
  EXPECT_THAT(message([](auto& o) { o.final_rate = 1; }), HasSubstr("final_rate = 1"));
  EXPECT_THAT(message([](auto& o) { o.select = "best"; }),
              HasSubstr("select 'best' is unknown: choose from argmax, perturbation"));
}

TEST(Search, AnAlphaThatLeavesTheNumbersEndsIt) {
  SupernetProblem problem = small_problem("nasbench201", floats());
  SearchOptions options = small_options(problem, "idarts");
  options.inner.rate = 1e30;
  options.inner.clip_norm = 0;
  EXPECT_THROW(run_search(problem, options), NotFiniteError);
}

// ---- collapse ----

TEST(Collapse, TheEigenvalueCriterionIsThatOfThePaper) {
  SearchOptions options;
  options.stop = "eigenvalue";
  options.stop_window = 2;
  options.stop_ratio = 0.75;
  const auto found = [&](const std::vector<double>& values) {
    return find_collapse(options, {.eigenvalues = values, .skips = {}});
  };
  EXPECT_FALSE(found({1}));
  EXPECT_FALSE(found({0.01, 1, 2}));  // the first window is not whole yet
  EXPECT_FALSE(found({1, 1, 1, 1}));
  EXPECT_FALSE(found({1, 1, 1, 1.5}));             // averages 1 and 1.25: 0.8
  EXPECT_TRUE(found({1, 1, 1, 1.7}));              // 1 and 1.35: 0.74
  EXPECT_EQ(found({1, 1, 1, 1.7})->return_to, 1);  // e - window
  EXPECT_FALSE(found({-3, -2, -2, -1}));           // no sharp minimum
  EXPECT_THAT(found({1, 1, 1, 1.7})->reason, HasSubstr("eigenvalue"));
}

TEST(Collapse, TheSkipCriterionGoesBackToTheLastGoodCell) {
  SearchOptions options;
  options.stop = "skips";
  options.most_skips = 1;
  const auto found = [&](const std::vector<int64_t>& skips) {
    return find_collapse(options, {.eigenvalues = {}, .skips = skips});
  };
  EXPECT_FALSE(found({0, 1, 1}));
  EXPECT_EQ(found({0, 1, 2})->return_to, 1);
  EXPECT_EQ(found({3, 2})->return_to, 1);  // none is good: the one with the fewest
  EXPECT_THAT(found({0, 1, 2})->reason, HasSubstr("2 skip connections"));
}

TEST(Collapse, ASearchReturnsTheGenotypeFromBeforeIt) {
  SupernetProblem problem = small_problem("nasbench201", floats());
  SearchOptions options = small_options(problem, "darts");
  options.epochs = 30;
  options.stop = "skips";
  options.most_skips = 0;
  options.outer.rate = 0.3;  // alpha runs
  const SearchSummary s = run_search(problem, options);
  ASSERT_EQ(s.end, SearchEnd::collapse);
  EXPECT_LT(s.history.size(), 30U);
  EXPECT_GT(s.history.back().skips, 0);
  EXPECT_EQ(s.genotype, s.history[static_cast<size_t>(s.chosen_epoch) - 1].genotype);
  EXPECT_LT(s.chosen_epoch, static_cast<int64_t>(s.history.size()) + 1);
}

// NAS-Bench-201's own configurations: RANDOM.config and GDAS.config have 250, DARTS's 50.
TEST(SearchOptions, LastAsLongAsThePublishedRuns) {
  const SearchSpace space = make_space("nasbench201");
  EXPECT_EQ(default_search_options(space, "random-sharing").epochs, 250);
  EXPECT_EQ(default_search_options(space, "gdas").epochs, 250);
  EXPECT_EQ(default_search_options(space, "darts").epochs, 50);
  EXPECT_EQ(default_search_options(space, "idarts").epochs, 30);
}

// ---- selection ----

TEST(Perturbation, KeepsWhatIsMissedMost) {
  for (const std::string name : {"nasbench201", "nasbench1shot1-3", "darts"}) {
    const SearchSpace space = make_space(name);
    Random random(3);
    const Genotype wanted = random_genotype(space, random);
    const Tensor ideal = genotype_mixture(space, wanted, doubles());
    // A loss that misses exactly the wanted choices: whatever alpha says, they must be found.
    const auto loss = [&](const Tensor& mixture) { return -(mixture * ideal).sum().item<double>(); };
    const Tensor alpha = -3 * ideal;  // argmax would take anything else
    PerturbationSelection selection(space, alpha, 1);
    int64_t choices = 0;
    while (!selection.done()) {
      EXPECT_FALSE(selection.choose_next(loss).empty());
      ++choices;
    }
    EXPECT_GT(choices, 5);
    const Tensor found = genotype_mixture(space, selection.genotype(), doubles());
    EXPECT_TRUE(found.equal(ideal)) << name << ": " << genotype_text(selection.genotype()) << " for "
                                    << genotype_text(wanted);
  }
}

TEST(Perturbation, ALossThatIsNoNumberIsMissedMost) {
  const SearchSpace space = make_space("nasbench201");
  Random random(3);
  const Genotype wanted = random_genotype(space, random);
  const Tensor ideal = genotype_mixture(space, wanted, doubles());
  const int64_t operations = static_cast<int64_t>(space.operations.size());
  for (const double strange : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    // Whatever else it may do without: where a wanted operation has no weight, there is no loss.
    const auto loss = [&](const Tensor& mixture) {
      const Tensor left = (mixture * ideal).reshape({-1, operations}).sum(1);
      return left.eq(0).any().item<bool>() ? strange : mixture.square().sum().item<double>();
    };
    PerturbationSelection selection(space, -3 * ideal, 1);
    while (!selection.done()) selection.choose_next(loss);
    EXPECT_EQ(selection.genotype(), wanted) << strange;
  }
  PerturbationSelection lost(space, ideal, 1);
  EXPECT_THAT(
      test::message<NotFiniteError>([&] { lost.choose_next([](const Tensor&) { return std::nan(""); }); }),
      ::testing::AllOf(HasSubstr("choice 1 of 6"), HasSubstr("select = argmax")));
}

TEST(Perturbation, EndsASearch) {
  SupernetProblem problem = small_problem("nasbench201", floats());
  SearchOptions options = small_options(problem, "idarts");
  options.epochs = 1;
  options.select = "perturbation";
  const SearchSummary once = run_search(problem, options), again = run_search(problem, options);
  EXPECT_EQ(once.genotype, again.genotype);
  EXPECT_NO_THROW(validate_genotype(problem.supernet().space(), once.genotype));
  EXPECT_TRUE(problem.inner_loss_uses_outer());  // the supernet is what it was
}

TEST(GenotypeMixture, MakesTheSupernetComputeOneCell) {
  const SupernetProblem problem = small_problem("nasbench201", doubles());
  const SearchSpace& space = problem.supernet().space();
  const std::string chain = "|skip_connect~0|+|none~0|skip_connect~1|+|none~0|none~1|skip_connect~2|";
  const std::string direct = "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|";
  const auto logits = [&](const std::string& cell) {
    const Tensor mixture = genotype_mixture(space, parse_genotype(space, cell), doubles());
    EXPECT_EQ(mixture.sum().item<double>(), 6);
    return problem.supernet().logits(problem.initial_inner(0), mixture, problem.train().plain({}).images);
  };
  EXPECT_TRUE(logits(chain).allclose(logits(direct)));  // both hand their input on
  EXPECT_FALSE(logits(chain).allclose(
      logits("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|skip_connect~2|")));
}

}  // namespace
}  // namespace bilevel::nas
