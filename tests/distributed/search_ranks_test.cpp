// A search whose batches are divided among ranks against the search of one process: derivatives of the
// supernet, alpha after ten steps by every method and with every guard, what a step sends, and going on with
// another number of ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/nas/ranked_supernet.h"
#include "bilevel/nas/search.h"
#include "bilevel/nas/search_images.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/nas/tape/taped_supernet.h"
#include "tests/distributed/ranks.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::relative_error;

// Bytes, cropped and flipped by the batch's seed: a piece of a batch must draw what the whole batch draws.
SupernetProblem small_problem(const std::string& space, int64_t partial = 1) {
  ImageData data;
  const LabelledImages drawn = draw_images({.samples = 48, .classes = 3, .noise = 0.3, .seed = 1}, doubles());
  data.train.images = (drawn.images * 40 + 128).clamp(0, 255).to(at::kByte);
  data.train.labels = drawn.labels;
  data.classes = 3;
  data.mean = {128, 128, 128};
  data.std = {50, 50, 50};
  const SearchSplit split{at::arange(0, 24, at::kLong), at::arange(24, 48, at::kLong)};
  SupernetOptions options;
  options.channels = 4;
  options.cells = 1;
  options.partial = partial;
  const AugmentOptions augment{.crop_padding = 1, .flip = true, .cutout = 2};
  return make_supernet_problem(make_space(space), options, search_images(data, split, augment, doubles()),
                               doubles());
}

std::vector<Tensor> all_products(const SupernetEngine& problem, const SupernetProblem& base) {
  const Tensor w = base.initial_inner(1), x = base.initial_outer(2) * 100;
  const Tensor v = test::random_like(w, 3), u = test::random_like(x, 4);
  const Batch batch{Random(5).permutation(24).narrow(0, 0, 7), 9};
  const auto at = problem.linearize(w, x, batch);
  const auto both = at->hessian_and_cross(v);
  const OuterGradients f = problem.outer_gradients(w, x, batch),
                       in_alpha = problem.outer_gradient_in_outer(w, x, batch);
  return {at->gradient(),
          at->hessian(v),
          at->cross(v),
          at->cross_transposed(u),
          both.first,
          both.second,
          at->gauss_newton(v),
          f.loss.reshape({1}),
          f.w,
          f.x,
          in_alpha.loss.reshape({1}),
          in_alpha.x,
          problem.inner_gradient(w, x, batch),
          problem.inner_gradient_in_outer(w, x, batch),
          problem.inner_loss(w, x, batch).reshape({1}),
          problem.inner_gradient_at(w, base.mixture(x, 1), batch)};
}

class EverySpace : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySpace, has_the_derivatives_of_the_whole_batch_on_ranks) {
  BILEVEL_NEEDS_GLOO();
  const SupernetProblem alone = small_problem(GetParam());
  const std::vector<Tensor> expected = all_products(alone, alone);
  for (const int size : {2, 3}) {
    test::run_ranks(size, [&](const auto& group) {
      SupernetProblem own = small_problem(GetParam());
      own.divide(divided_among(group));
      for (const bool taped : {false, true}) {
        std::unique_ptr<SupernetEngine> tape = taped ? tape_supernet(own) : nullptr;
        ASSERT_EQ(taped, tape != nullptr);
        const std::vector<Tensor> found = all_products(RankedSupernet(own, std::move(tape)), own);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_LT(relative_error(found[i], expected[i]), 1e-11)
              << "value " << i << " on " << size << (taped ? ", taped" : "");
        }
      }
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Spaces, EverySpace, ::testing::Values("nasbench201", "nasbench1shot1-2", "darts"),
                         [](const auto& row) { return test::test_name(row.param); });

// The statistics of each rank's own images give other derivatives, the same on all ranks.
TEST(OwnNorms, are_those_of_a_mean_over_the_pieces) {
  BILEVEL_NEEDS_GLOO();
  const SupernetProblem alone = small_problem("nasbench201");
  const Tensor w = alone.initial_inner(1), x = alone.initial_outer(2);
  const Batch batch{at::arange(0, 8, at::kLong), 9};
  test::run_ranks(2, [&](const auto& group) {
    SupernetProblem own = small_problem("nasbench201");
    own.divide(divided_among(group, /*global_norms=*/false));
    const Tensor sum = RankedSupernet(own).inner_gradient(w, x, batch),
                 taped = RankedSupernet(own, tape_supernet(own)).inner_gradient(w, x, batch);
    Tensor expected = at::zeros_like(w);
    for (const int64_t begin : {0, 4}) {
      // What prepare would have at these positions, by itself.
      const LabelledImages images = alone.train().part(batch, begin, 4);
      const ImageSource four = image_source(images);
      const SupernetProblem piece(alone.supernet(), four, four, doubles());
      expected += 0.5 * piece.inner_gradient(w, x, {});
    }
    EXPECT_LT(relative_error(sum, expected), 1e-12);
    EXPECT_LT(relative_error(taped, expected), 1e-11);
    EXPECT_GT(relative_error(sum, alone.inner_gradient(w, x, batch)), 1e-3);
    EXPECT_EQ(group->communication().calls, 2);  // one each
  });
}

struct Case {
  std::string space, method, guard = "none", select = "argmax";
};
std::string case_name(const ::testing::TestParamInfo<Case>& row) {
  return test::test_name(row.param.space + "_" + row.param.method + "_" + row.param.guard + "_" +
                         row.param.select);
}

// Ten steps of alpha by iDARTS on NAS-Bench-201, in two epochs; four otherwise.
SearchOptions few_steps(const SupernetProblem& problem, const Case& c) {
  SearchOptions options = default_search_options(problem.supernet().space(), c.method);
  options.guard = {};
  if (c.guard != "none") options.guard = {c.guard, c.guard == "partial-channels" ? 2 : 0.3};
  options.epochs = 2;
  options.warmup_epochs = 0;
  options.alpha_steps = c.method == "idarts" && c.space == "nasbench201" ? 5 : 2;
  options.batch = 5;
  options.inner.steps = 2;
  options.hypergradient.terms = 2;
  options.outer.rate = 0.01;
  options.samples = 3;
  options.eigenvalue_products = 4;
  options.score_images = 18;
  options.select = c.select;
  options.tune_epochs = 0;
  options.seed = 5;
  return options;
}
SupernetProblem problem_of(const Case& c) {
  return small_problem(c.space, c.guard == "partial-channels" ? 2 : 1);
}

struct Found {
  SearchSummary summary;
  SearchState last;
};
Found search(SupernetProblem& problem, const Case& c, const std::optional<SearchState>& from = {},
             int64_t stop_after = 1000) {
  Search search(problem, few_steps(problem, c), nullptr);
  Found found;
  int64_t steps = 0;
  SearchHooks hooks;
  hooks.save = [&](const SearchState& state) { found.last = state; };
  hooks.interrupted = [&] { return ++steps >= stop_after; };
  found.summary = search.run(from ? *from : search.begin(), hooks);
  return found;
}

void expect_the_same(const Found& found, const Found& expected) {
  EXPECT_EQ(found.summary.end, expected.summary.end);
  // Alpha to 1e-10 after ten steps, in double.
  EXPECT_LT((found.summary.alpha - expected.summary.alpha).abs().max().item<double>(), 1e-10);
  EXPECT_LT(relative_error(found.last.algorithm.inner.w, expected.last.algorithm.inner.w), 1e-10);
  EXPECT_EQ(found.summary.genotype, expected.summary.genotype);
  EXPECT_EQ(found.summary.counts.inner_gradient, expected.summary.counts.inner_gradient);
  EXPECT_EQ(found.summary.counts.hessian, expected.summary.counts.hessian);
  EXPECT_EQ(found.summary.counts.cross, expected.summary.counts.cross);
  EXPECT_EQ(found.summary.counts.samples, expected.summary.counts.samples);
  ASSERT_EQ(found.summary.history.size(), expected.summary.history.size());
  for (size_t i = 0; i < expected.summary.history.size(); ++i) {
    const EpochRecord &a = found.summary.history[i], &b = expected.summary.history[i];
    EXPECT_NEAR(a.valid_loss, b.valid_loss, 1e-9);
    EXPECT_EQ(a.valid_accuracy, b.valid_accuracy);
    const auto near = [](double x, double y) {
      return (std::isnan(x) && std::isnan(y)) || std::abs(x - y) < 1e-9 * (1 + std::abs(y));
    };
    EXPECT_TRUE(near(a.eigenvalue, b.eigenvalue)) << a.eigenvalue << " " << b.eigenvalue;
    EXPECT_TRUE(near(a.search_loss, b.search_loss)) << a.search_loss << " " << b.search_loss;
  }
}

class RankedSearch : public ::testing::TestWithParam<Case> {};

TEST_P(RankedSearch, finds_the_alpha_of_one_process) {
  BILEVEL_NEEDS_GLOO();
  SupernetProblem alone = problem_of(GetParam());
  const Found expected = search(alone, GetParam());
  std::vector<Found> found(2);
  test::run_ranks(2, [&](const auto& group) {
    SupernetProblem own = problem_of(GetParam());
    own.divide(divided_among(group));
    found[static_cast<size_t>(group->rank())] = search(own, GetParam());
  });
  expect_the_same(found[0], expected);
  EXPECT_TRUE(at::equal(found[0].summary.alpha, found[1].summary.alpha)) << "ranks have other bits";
  EXPECT_TRUE(at::equal(found[0].last.algorithm.inner.w, found[1].last.algorithm.inner.w));
}
INSTANTIATE_TEST_SUITE_P(Each, RankedSearch,
                         ::testing::Values(Case{"nasbench201", "idarts"}, Case{"nasbench201", "darts"},
                                           Case{"nasbench201", "darts-first-order"},
                                           Case{"nasbench201", "truncated"}, Case{"nasbench201", "cg"},
                                           Case{"nasbench201", "gdas"}, Case{"nasbench201", "random-sharing"},
                                           Case{"nasbench1shot1-2", "idarts"}, Case{"darts", "idarts"},
                                           Case{"nasbench201", "darts-first-order", "beta-decay"},
                                           Case{"nasbench201", "darts-first-order", "smoothing"},
                                           Case{"nasbench201", "darts-first-order", "auxiliary-skip"},
                                           Case{"nasbench201", "darts-first-order", "partial-channels"},
                                           Case{"nasbench201", "darts-first-order", "none", "perturbation"}),
                         case_name);

TEST(SearchOfRanks, goes_on_with_another_number_of_ranks) {
  BILEVEL_NEEDS_GLOO();
  const Case c{"nasbench201", "idarts"};
  SupernetProblem alone = problem_of(c);
  const Found expected = search(alone, c);
  SearchState middle;
  const auto on_ranks = [&](int size, const std::optional<SearchState>& from, int64_t stop_after) {
    Found found;
    test::run_ranks(size, [&](const auto& group) {
      SupernetProblem own = problem_of(c);
      own.divide(divided_among(group));
      const Found mine = search(own, c, from, stop_after);
      if (group->rank() == 0) found = mine;
    });
    return found;
  };
  const Found part = on_ranks(3, {}, 3);
  EXPECT_EQ(part.summary.end, SearchEnd::interrupted);
  expect_the_same(on_ranks(2, part.last, 1000), expected);
}

// T + K + 1 vectors of w's length, 3 of alpha's and the loss; norms apart.
TEST(SearchOfRanks, sends_what_a_step_of_idarts_needs) {
  BILEVEL_NEEDS_GLOO();
  const Case c{"nasbench201", "idarts"};
  test::run_ranks(2, [&](const auto& group) {
    SupernetProblem own = problem_of(c);
    own.divide(divided_among(group));
    const SearchOptions options = few_steps(own, c);
    Search search(own, options, nullptr);
    std::vector<int64_t> bytes, norm_calls;
    SearchHooks hooks;
    hooks.step = [&](const SearchState&, int64_t) {
      bytes.push_back(without_norms(own.ranks()).bytes);
      norm_calls.push_back(own.ranks().norms->sent().calls);
    };
    hooks.interrupted = [&] { return bytes.size() == 2; };
    search.run(search.begin(), hooks);
    const int64_t w = own.initial_inner(0).numel(), x = own.initial_outer(0).numel();
    const int64_t t = options.inner.steps, k = options.hypergradient.terms;
    EXPECT_EQ(bytes[1] - bytes[0], 8 * ((t + k + 1) * w + 3 * x + 1));
    // The norms that end in one node are one sum forwards and one backwards. T gradients in w, the outer one,
    // the point of K products, these, and two gradients in alpha for the cross difference.
    int64_t nodes = 0;
    const std::optional<Tape> tape = record(own.supernet());
    for (const Tape::Operation& operation : tape->operations) {
      const auto* mix = std::get_if<Tape::Mix>(&operation);
      nodes += mix != nullptr && !mix->norms.empty() ? 1 : 0;
    }
    EXPECT_EQ(norm_calls[1] - norm_calls[0], 2 * (t + k + 4) * nodes);
  });
}

TEST(SearchOfRanks, needs_an_image_for_every_rank) {
  BILEVEL_NEEDS_GLOO();
  const auto errors = test::try_ranks(2, [&](const auto& group) {
    SupernetProblem own = small_problem("nasbench201");
    own.divide(divided_among(group));
    SearchOptions options = few_steps(own, {"nasbench201", "idarts"});
    options.batch = 1;
    Search(own, options, nullptr);
  });
  for (const auto& error : errors) EXPECT_THROW(std::rethrow_exception(error), std::invalid_argument);
}

}  // namespace
}  // namespace bilevel::nas
