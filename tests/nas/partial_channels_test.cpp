// Partial channels: what goes through the operations, what goes by, and how nodes weigh their inputs.

#include "bilevel/nas/guards/partial_channels.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bilevel/nas/genotype.h"
#include "bilevel/nas/perturbation.h"
#include "bilevel/nas/search.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/nas/tape/tape.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::message;
using ::testing::HasSubstr;

SupernetOptions small(int64_t partial, bool merged = true) {
  SupernetOptions options;
  options.channels = 8;
  options.cells = 3;  // so that two of those of DARTS reduce
  options.height = options.width = 7;
  options.classes = 3;
  options.partial = partial;
  options.merged = merged;
  return options;
}

// alpha large enough that no two entries of the mixture are alike.
Tensor uneven_mixture(const SearchSpace& space) {
  return mixture_weights(space, 700 * initial_alpha(space, 3, doubles()));
}

// Values by hand: four channels that are all 0, 1, 2, 3, of which the first half becomes 10 and 11.
TEST(PartialChannels, WhatGoesByIsShuffledIn) {
  const Tensor x = at::arange(4, doubles()).view({1, 4, 1, 1}).expand({2, 4, 3, 3});
  const Feature feature{x, 4, 3, 3};
  const SplitChannels split(feature, 2);
  ASSERT_EQ(split.active().channels, 2);
  EXPECT_TRUE(split.active().value.equal(x.narrow(1, 0, 2)));
  Feature operated = split.active();
  operated.value = operated.value + 10;
  const Feature joined = split.joined(operated);
  ASSERT_EQ(joined.channels, 4);
  EXPECT_TRUE(joined.value.select(2, 0).select(2, 0)[1].equal(at::tensor({10.0, 2.0, 11.0, 3.0}, doubles())));
  // All channels at once go through and stay where they are.
  EXPECT_TRUE(SplitChannels(feature, 1).active().value.equal(x));
  EXPECT_TRUE(SplitChannels(feature, 1).joined(operated).value.is_same(operated.value));
}

// 3 x 3 to 2 x 2: the largest of 0 1 3 4, of 2 5, of 6 7 and 8 alone.
TEST(PartialChannels, WhatGoesByIsHalvedWhereTheOperationsHalve) {
  const Tensor x = at::arange(9, doubles()).view({1, 1, 3, 3}).repeat({1, 2, 1, 1});
  const SplitChannels split({x, 2, 3, 3}, 2);
  const Feature joined = split.joined({at::zeros({1, 1, 2, 2}, doubles()), 1, 2, 2});
  EXPECT_EQ(joined.height, 2);
  EXPECT_TRUE(joined.value[0][1].equal(at::tensor({4.0, 5.0, 7.0, 8.0}, doubles()).view({2, 2})));
}

TEST(PartialChannels, MergedAndPlainNetworksAreTheSameFunction) {
  for (const std::string& name : space_names()) {
    for (const int64_t partial : {2, 4}) {
      SCOPED_TRACE(name);
      const Supernet merged(make_space(name), small(partial)), plain(make_space(name), small(partial, false));
      ASSERT_EQ(merged.plan().parameters(), plain.plan().parameters());
      EXPECT_LT(merged.plan().parameters(), Supernet(make_space(name), small(1)).plan().parameters());
      const Tensor w = merged.plan().initial_weights(1, doubles()), mixture = uneven_mixture(merged.space());
      const Tensor images = Random(5).normal({4, 3, 7, 7}, doubles());
      EXPECT_LT(test::relative_error(merged.logits(w, mixture, images), plain.logits(w, mixture, images)),
                1e-12);
    }
  }
}

// PC-DARTS has one for every node with several edges; 1Shot1 has its parents.
TEST(PartialChannels, NodesWeighTheirInputs) {
  const auto shapes = [](const SearchSpace& space) {
    std::string all;
    for (const AlphaBlock& block : space.alpha) {
      if (block.shares) all += block.name + " " + std::to_string(block.choices) + ", ";
    }
    return all;
  };
  EXPECT_EQ(shapes(Supernet(make_space("nasbench201"), small(2)).space()),
            "edges-inputs-2 2, edges-inputs-3 3, ");
  EXPECT_EQ(shapes(Supernet(make_space("darts"), small(2)).space()),
            "normal-inputs-1 2, normal-inputs-2 3, normal-inputs-3 4, normal-inputs-4 5, "
            "reduce-inputs-1 2, reduce-inputs-2 3, reduce-inputs-3 4, reduce-inputs-4 5, ");
  EXPECT_EQ(shapes(Supernet(make_space("nasbench1shot1-3"), small(2)).space()), "");
  EXPECT_EQ(shapes(Supernet(make_space("nasbench201"), small(1)).space()), "");

  // An edge without a share brings nothing, so that its operations cannot matter; with one they do.
  for (const std::string name : {"nasbench201", "darts"}) {
    SCOPED_TRACE(name);
    const Supernet net(make_space(name), small(2));
    const SearchSpace& space = net.space();
    const std::string cell = space.alpha[0].name;
    const Tensor w = net.plan().initial_weights(1, doubles()),
                 images = Random(5).normal({4, 3, 7, 7}, doubles());
    // The second node's edge from vertex 1: row 2 of NAS-Bench-201, row 3 of DARTS.
    const int64_t row = name == "darts" ? 3 : 2;
    for (const double share : {0.0, 0.25}) {
      Tensor mixture = uneven_mixture(space).clone();
      space.block(mixture, input_shares_name(cell, 2))[0][1] = share;
      const Tensor before = net.logits(w, mixture, images);
      Tensor other = mixture.clone();
      space.block(other, cell)[row].fill_(0.5);
      EXPECT_EQ(net.logits(w, other, images).equal(before), share == 0);
    }
  }
}

// The strongest operation of an edge times its share decides which two a node of DARTS keeps.
TEST(PartialChannels, SharesDecideWhichEdgesOfDartsAreKept) {
  const SearchSpace space = Supernet(make_space("darts"), small(2)).space();
  Tensor mixture = mixture_weights(space, at::zeros({space.alpha_size()}, doubles())).clone();
  for (int64_t row = 0; row < 14; ++row) space.block(mixture, "normal")[row][4] = 0.5;  // sep_conv_3x3
  space.block(mixture, "normal")[5][4] = 0.9;  // node 3 from vertex 0: strongest by itself
  const Tensor shares = space.block(mixture, "normal-inputs-3")[0];
  shares.copy_(at::tensor({0.1, 0.2, 0.3, 0.4}, doubles()));
  const GenotypeNode node = derive_genotype(space, mixture).cells[0].nodes[2];
  EXPECT_EQ(node.inputs[0].from, 3);  // 0.5 * 0.4
  EXPECT_EQ(node.inputs[1].from, 2);  // 0.5 * 0.3; vertex 0 has 0.9 * 0.1
  EXPECT_EQ(node.inputs[0].operation, "sep_conv_3x3");
}

TEST(PartialChannels, NothingIsDrawnOrSelectedAmongShares) {
  SupernetProblem problem{Supernet(make_space("darts"), small(2)),
                          image_source(draw_images({.samples = 4, .height = 7, .width = 7}, doubles())),
                          image_source(draw_images({.samples = 4, .height = 7, .width = 7}, doubles())),
                          doubles()};
  const SearchSpace& space = problem.supernet().space();
  const Tensor x = 700 * problem.initial_outer(0);
  problem.set_sampling(Sampling::gumbel, 1);
  const Tensor drawn = problem.mixture(x, 9), soft = mixture_weights(space, x);
  EXPECT_TRUE(space.block(drawn, "normal-inputs-4").equal(space.block(soft, "normal-inputs-4")));
  EXPECT_EQ(space.block(drawn, "normal").max().item<double>(), 1);

  // A thinned edge brings nothing, not even the channels that go by.
  PerturbationSelection selection(space, x, 0);
  while (!selection.done()) {
    selection.choose_next([&](const Tensor& mixture) { return mixture.pow(2).sum().item<double>(); });
  }
  for (const AlphaBlock& block : space.alpha) {
    if (!block.shares) continue;
    const Tensor shares = space.block(selection.mixture(), block.name)[0];
    EXPECT_EQ(shares.count_nonzero().item<int64_t>(), 2) << block.name;
  }
  validate_genotype(space, selection.genotype());
}

TEST(PartialChannels, HasNoTapeAndRefusesWhatCannotBeSplit) {
  EXPECT_TRUE(record(Supernet(make_space("nasbench201"), small(1))).has_value());
  EXPECT_FALSE(record(Supernet(make_space("nasbench201"), small(4))).has_value());
  EXPECT_THAT(message([] { const Supernet net(make_space("nasbench201"), small(3)); }),
              HasSubstr("channels = 8: guard = partial-channels sends one channel in 3 through the "
                        "operations, so give a multiple of 3"));
  EXPECT_THAT(message([] { const Supernet net(make_space("darts"), small(8)); }),
              HasSubstr("give a multiple of 16, or another guard_strength"));
  SupernetProblem whole{Supernet(make_space("nasbench201"), small(1)),
                        image_source(draw_images({.samples = 4, .height = 7, .width = 7}, doubles())),
                        image_source(draw_images({.samples = 4, .height = 7, .width = 7}, doubles())),
                        doubles()};
  SearchOptions options = default_search_options(whole.supernet().space(), "darts-first-order");
  options.batch = 4;
  options.guard = {"partial-channels", 4};
  EXPECT_THAT(message([&] { const Search search(whole, options, nullptr); }),
              HasSubstr("the supernet sends one channel in 1 through its operations, the strength asks for "
                        "one in 4"));
}

}  // namespace
}  // namespace bilevel::nas
