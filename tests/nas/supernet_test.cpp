// The supernets: merged copies against the plain form, and the plain form against a network built by hand.

#include "bilevel/nas/supernet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "bilevel/nas/supernet_problem.h"
#include "bilevel/nas/synthetic_images.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::random_like;
using test::relative_error;

struct Size {
  std::string space;
  int64_t channels, cells, height, width;
};

class EverySupernet : public ::testing::TestWithParam<Size> {
 protected:
  Supernet supernet(bool merged) const {
    SupernetOptions options;
    options.channels = GetParam().channels;
    options.cells = GetParam().cells;
    options.height = GetParam().height;
    options.width = GetParam().width;
    options.merged = merged;
    return {make_space(GetParam().space), options};
  }
  SupernetProblem problem(bool merged) const {
    const SyntheticImages images{.samples = 6, .height = GetParam().height, .width = GetParam().width};
    return {supernet(merged), image_source(draw_images(images, doubles())),
            image_source(draw_images(images, doubles())), doubles()};
  }
};

TEST_P(EverySupernet, MergedCopiesAreTheSameMathematics) {
  const SupernetProblem merged = problem(true), plain = problem(false);
  ASSERT_EQ(merged.supernet().plan().parameters(), plain.supernet().plan().parameters());
  const Tensor w = plain.initial_inner(3), x = random_like(plain.initial_outer(3), 4);
  Oracle a(merged), b(plain);
  EXPECT_LT(relative_error(merged.inner_loss(w, x, {}), plain.inner_loss(w, x, {})), 1e-13);
  EXPECT_LT(relative_error(a.inner_gradient(w, x, {}), b.inner_gradient(w, x, {})), 1e-11);
  EXPECT_LT(relative_error(a.outer_gradients(w, x, {}).x, b.outer_gradients(w, x, {}).x), 1e-11);
  const auto of_merged = a.linearize(w, x, {}), of_plain = b.linearize(w, x, {});
  const Tensor v = random_like(w, 5), u = random_like(x, 6);
  EXPECT_LT(relative_error(of_merged->hessian(v), of_plain->hessian(v)), 1e-10);
  EXPECT_LT(relative_error(of_merged->cross(v), of_plain->cross(v)), 1e-10);
  EXPECT_LT(relative_error(of_merged->cross_transposed(u), of_plain->cross_transposed(u)), 1e-10);
  EXPECT_LT(relative_error(of_merged->gauss_newton(v), of_plain->gauss_newton(v)), 1e-10);
}

TEST_P(EverySupernet, SecondDerivativesAreThoseOfTheLoss) {
  const SupernetProblem p = problem(true);
  const Tensor w = p.initial_inner(3), x = random_like(p.initial_outer(3), 4);
  Oracle oracle(p);
  const Tensor v = random_like(w, 5) / 100;
  const auto at_point = oracle.linearize(w, x, {});
  const double h = 1e-6;
  const Tensor along =
      (oracle.inner_gradient(w + h * v, x, {}) - oracle.inner_gradient(w - h * v, x, {})) / (2 * h);
  EXPECT_LT(relative_error(at_point->hessian(v), along), 1e-5);
  const Tensor mixed =
      (oracle.inner_gradient_in_outer(w + h * v, x, {}) - oracle.inner_gradient_in_outer(w - h * v, x, {})) /
      (2 * h);
  EXPECT_LT(relative_error(at_point->cross(v), mixed), 1e-5);
}

TEST_P(EverySupernet, EveryWeightAndEveryChoiceMatters) {
  const SupernetProblem p = problem(true);
  const Tensor w = p.initial_inner(3), x = random_like(p.initial_outer(3), 4);
  Oracle oracle(p);
  // Norms make the loss blind to some directions, but to no whole entry; `none` moves the others by softmax.
  const std::vector<Tensor> parts = p.inner_layout()->split(oracle.inner_gradient(w, x, {}));
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_GT(parts[i].norm().item<double>(), 1e-9) << p.inner_layout()->entries()[i].name;
  }
  EXPECT_GT(oracle.outer_gradients(w, x, {}).x.abs().min().item<double>(), 1e-12);
}

TEST_P(EverySupernet, OneSeedTheSameStart) {
  const SupernetProblem p = problem(true);
  EXPECT_TRUE(p.initial_inner(1).equal(p.initial_inner(1)));
  EXPECT_FALSE(p.initial_inner(1).equal(p.initial_inner(2)));
  EXPECT_FALSE(p.initial_outer(1).equal(p.initial_outer(2)));
}

INSTANTIATE_TEST_SUITE_P(Spaces, EverySupernet,
                         ::testing::Values(Size{"nasbench201", 2, 1, 8, 8}, Size{"nasbench201", 2, 1, 4, 4},
                                           Size{"nasbench201", 3, 2, 9, 7},
                                           Size{"nasbench1shot1-1", 2, 3, 8, 8},
                                           Size{"nasbench1shot1-2", 2, 3, 7, 9},
                                           Size{"nasbench1shot1-3", 2, 4, 8, 8}, Size{"darts", 2, 3, 8, 8},
                                           Size{"darts", 2, 4, 14, 9}),
                         [](const auto& tested) {
                           return test::test_name(tested.param.space) + "_" + std::to_string(tested.index);
                         });

// NAS-Bench-201 written out operation by operation, with no code of the supernet's.
TEST(Nasbench201Supernet, IsTheNetworkThatTheFactsDescribe) {
  SupernetOptions options;
  options.channels = 2;
  options.cells = 1;
  options.height = options.width = 8;
  const Supernet supernet(make_space("nasbench201"), options);
  const Tensor w = supernet.plan().initial_weights(1, doubles());
  const Tensor mixture = mixture_weights(supernet.space(), random_like(at::zeros({30}, doubles()), 2));
  const Tensor images = random_like(at::zeros({5, 3, 8, 8}, doubles()), 3);
  const std::vector<Tensor> weights = supernet.plan().weights.split(w);
  size_t next = 0;
  const auto take = [&] { return weights.at(next++); };
  const auto norm = [](const Tensor& t, const Tensor& gain = {}, const Tensor& shift = {}) {
    const Tensor mean = t.mean({0, 2, 3}, true);
    const Tensor variance = (t - mean).square().mean({0, 2, 3}, true);
    const Tensor y = (t - mean) / (variance + 1e-5).sqrt();
    return gain.defined() ? y * gain.view({1, -1, 1, 1}) + shift.view({1, -1, 1, 1}) : y;
  };
  const auto norm_learned = [&](const Tensor& t) {
    const Tensor gain = take();
    return norm(t, gain, take());
  };
  const Tensor m = mixture.view({6, 5});  // none, skip, 1x1, 3x3, pool
  const auto cell = [&](const Tensor& input) {
    std::vector<Tensor> node = {input, {}, {}, {}};
    for (int64_t from = 0; from < 3; ++from) {
      const Tensor one = take(), three = take();  // of all edges that leave the node
      const int64_t c = input.size(1);
      for (int64_t to = from + 1; to <= 3; ++to) {
        const Tensor& x = node[static_cast<size_t>(from)];
        const Tensor e = m[to * (to - 1) / 2 + from];
        const int64_t d = to - from - 1;
        const Tensor counted = at::avg_pool2d(at::ones_like(x), 3, 1, 1, false, true);
        const Tensor pooled = at::avg_pool2d(x, 3, 1, 1, false, true) / counted;
        const Tensor sent = e[1] * x + e[2] * norm(at::conv2d(x.relu(), one.narrow(0, d * c, c))) +
                            e[3] * norm(at::conv2d(x.relu(), three.narrow(0, d * c, c), {}, 1, 1)) +
                            e[4] * pooled;
        Tensor& sum = node[static_cast<size_t>(to)];
        sum = sum.defined() ? sum + sent : sent;
      }
    }
    return node[3];
  };
  const auto reduce = [&](const Tensor& x) {
    const Tensor a = norm_learned(at::conv2d(x.relu(), take(), {}, 2, 1));
    const Tensor b = norm_learned(at::conv2d(a.relu(), take(), {}, 1, 1));
    return at::conv2d(at::avg_pool2d(x, 2, 2), take()) + b;
  };
  Tensor x = norm_learned(at::conv2d(images, take(), {}, 1, 1));
  x = cell(x);
  x = cell(reduce(x));
  x = cell(reduce(x));
  x = norm_learned(x).relu().mean({2, 3});
  const Tensor last = take();
  const Tensor logits = x.matmul(last.t()) + take();
  ASSERT_EQ(next, weights.size());
  EXPECT_LT(relative_error(supernet.logits(w, mixture, images), logits), 1e-12);
}

TEST(Supernet, SaysWhatIsWrongWithItsSizes) {
  const auto message = [](const std::string& space, const std::function<void(SupernetOptions&)>& change) {
    SupernetOptions options;
    change(options);
    try {
      const Supernet supernet(make_space(space), options);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message("nasbench201", [](auto& o) { o.channels = 0; }), ::testing::HasSubstr("channels = 0"));
  EXPECT_THAT(message("darts", [](auto& o) { o.channels = 3; }), ::testing::HasSubstr("even"));
  EXPECT_THAT(message("nasbench201", [](auto& o) { o.cells = 2'000'000'000; }),
              ::testing::HasSubstr("cells = 2000000000: must be 0 to 1000"));
  EXPECT_THAT(message("nasbench201", [](auto& o) { o.classes = 1; }), ::testing::HasSubstr("classes = 1"));
  EXPECT_THAT(message("nasbench201", [](auto& o) { o.height = 0; }),
              ::testing::HasSubstr("image height = 0"));
}

TEST(Sampling, GumbelPicksOneOperationAndPassesAGradient) {
  SupernetOptions options;
  options.channels = 2;
  options.cells = 1;
  options.height = options.width = 8;
  const auto images = image_source(draw_images({.samples = 6}, doubles()));
  SupernetProblem problem(Supernet(make_space("nasbench201"), options), images, images, doubles());
  problem.set_sampling(Sampling::gumbel, 10);
  const Tensor x = problem.initial_outer(0), w = problem.initial_inner(0);
  const Tensor one = problem.mixture(x, 1).view({6, 5});
  EXPECT_LT(relative_error(std::get<0>(one.max(1)), at::ones({6}, doubles())), 1e-12);
  EXPECT_LT(relative_error(one.sum(1), at::ones({6}, doubles())), 1e-12);
  EXPECT_TRUE(problem.mixture(x, 1).equal(problem.mixture(x, 1)));
  EXPECT_FALSE(problem.mixture(x, 1).equal(problem.mixture(x, 2)));
  Oracle oracle(problem);
  EXPECT_GT(oracle.outer_gradients(w, x, Batch{{}, 1}).x.norm().item<double>(), 1e-8);
}

// Drawn many times, an operation comes up as often as softmax(alpha) says: the Gumbel trick.
TEST(Sampling, GumbelFollowsSoftmax) {
  SupernetOptions options;
  options.channels = 2;
  options.cells = 1;
  options.height = options.width = 8;
  const auto images = image_source(draw_images({.samples = 2}, doubles()));
  SupernetProblem problem(Supernet(make_space("nasbench201"), options), images, images, doubles());
  problem.set_sampling(Sampling::gumbel, 2);
  const Tensor x = random_like(problem.initial_outer(0), 7);
  Tensor counts = at::zeros_like(x);
  constexpr int draws = 4000;
  for (uint64_t seed = 0; seed < draws; ++seed) counts += problem.mixture(x, seed).detach();
  const Tensor expected = mixture_weights(problem.supernet().space(), x);
  // Five standard deviations of a binomial share.
  const Tensor deviation = (expected * (1 - expected) / draws).sqrt();
  EXPECT_LT(((counts / draws - expected).abs() / deviation).max().item<double>(), 5);
}

}  // namespace
}  // namespace bilevel::nas
