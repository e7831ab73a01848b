// Derived networks: counts against the benchmarks' own, and values that training needs.

#include "bilevel/nas/network.h"

#include <gtest/gtest.h>

#include "bilevel/nas/operations.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::random_like;
using test::relative_error;

constexpr const char* published_darts_cell =
    "normal: (sep_conv_3x3,0)(sep_conv_3x3,1) (sep_conv_3x3,0)(sep_conv_3x3,1) "
    "(sep_conv_3x3,1)(skip_connect,0) "
    "(skip_connect,0)(dil_conv_3x3,2) "
    "reduce: (max_pool_3x3,0)(max_pool_3x3,1) (skip_connect,2)(max_pool_3x3,1) "
    "(max_pool_3x3,0)(skip_connect,2) "
    "(skip_connect,2)(max_pool_3x3,1)";

TEST(DartsNetwork, CountsOfThePublishedCell) {
  const SearchSpace space = make_space("darts");
  const Genotype genotype = parse_genotype(space, published_darts_cell);
  for (const bool auxiliary : {false, true}) {
    NetworkOptions cifar{.channels = 36, .cells = 20};
    cifar.auxiliary = auxiliary;
    const Network network(space, genotype, cifar);
    EXPECT_EQ(network.parameters(), 3'349'342);
    EXPECT_EQ(network.multiply_adds(), 528'359'040);
    NetworkOptions imagenet{.channels = 48, .cells = 14};
    imagenet.height = imagenet.width = 224;
    imagenet.classes = 1000;
    imagenet.imagenet_stem = true;
    imagenet.auxiliary = auxiliary;
    const Network large(space, genotype, imagenet);
    EXPECT_EQ(large.parameters(), 4'718'752);
    EXPECT_EQ(large.multiply_adds(), 529'911'552);
  }
}

TEST(Nasbench201Network, CountsOfAllConvolutions) {
  const SearchSpace space = make_space("nasbench201");
  const Genotype genotype = parse_genotype(
      space,
      "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|");
  const Network network(space, genotype, {});
  EXPECT_EQ(network.parameters(), 1'531'546);
  EXPECT_NEAR(static_cast<double>(network.multiply_adds()) / 1e6, 220.12, 0.005);
}

TEST(Network, TestingWithRememberedStatisticsIsIndependentOfTheBatch) {
  const SearchSpace space = make_space("darts");
  NetworkOptions options{.channels = 4, .cells = 3};
  options.height = options.width = 12;
  options.auxiliary = true;
  const Network network(space, parse_genotype(space, published_darts_cell), options);
  const Tensor w = network.plan().initial_weights(1, doubles());
  const Tensor statistics = network.plan().initial_statistics(doubles());
  const Tensor before = statistics.clone();
  const Tensor images = random_like(at::zeros({8, 3, 12, 12}, doubles()), 2);
  PassOptions training{.norm = Norm::remember, .statistics = statistics};
  const NetworkOutput trained = network.forward(w, images, training);
  EXPECT_EQ(trained.auxiliary.sizes(), trained.logits.sizes());
  EXPECT_FALSE(statistics.equal(before));
  PassOptions testing{.norm = Norm::remembered, .statistics = statistics};
  const Tensor after = statistics.clone();
  const Tensor all = network.forward(w, images, testing).logits;
  const Tensor some = network.forward(w, images.slice(0, 0, 3), testing).logits;
  EXPECT_LT(relative_error(some, all.slice(0, 0, 3)), 1e-12);
  EXPECT_TRUE(statistics.equal(after));
}

TEST(Network, DropPathDropsEdgesOfImagesAndKeepsTheMean) {
  NetworkPlan plan;
  Pass describe(plan);
  describe.drop_path({});
  EXPECT_EQ(plan.drop_paths, 1);
  PassOptions options{.norm = Norm::remember, .statistics = at::zeros({0}, doubles())};
  options.kept = draw_kept(plan, 20000, 0.3, 5, doubles());
  Pass pass(plan, at::zeros({0}, doubles()), options);
  const Feature ones{at::ones({20000, 1, 2, 2}, doubles()), 1, 2, 2};
  const Tensor dropped = pass.drop_path(ones).value;
  EXPECT_NEAR(dropped.mean().item<double>(), 1, 0.02);
  EXPECT_TRUE(
      at::logical_or(dropped == 0, at::isclose(dropped, at::full_like(dropped, 1 / 0.7))).all().item<bool>());
  const Tensor per_image = dropped.flatten(1);
  EXPECT_TRUE(per_image.eq(per_image.slice(1, 0, 1)).all().item<bool>());
}

}  // namespace
}  // namespace bilevel::nas
