#include "bilevel/nas/space.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>

#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::message;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Block {
  std::string name;
  int64_t rows, choices;
  bool operator==(const Block&) const = default;
};

std::vector<Block> blocks(const SearchSpace& space) {
  std::vector<Block> found;
  for (const AlphaBlock& b : space.alpha) found.push_back({b.name, b.rows, b.choices});
  return found;
}

TEST(Space, AlphaHasThePublishedShapes) {
  EXPECT_THAT(blocks(make_space("nasbench201")), ElementsAre(Block{"edges", 6, 5}));
  EXPECT_THAT(blocks(make_space("darts")), ElementsAre(Block{"normal", 14, 8}, Block{"reduce", 14, 8}));
  EXPECT_THAT(blocks(make_space("nasbench1shot1-1")),
              ElementsAre(Block{"operations", 4, 3}, Block{"output", 1, 5}, Block{"parents-3", 1, 3},
                          Block{"parents-4", 1, 4}));
  EXPECT_THAT(blocks(make_space("nasbench1shot1-2")),
              ElementsAre(Block{"operations", 4, 3}, Block{"output", 1, 5}, Block{"parents-2", 1, 2},
                          Block{"parents-3", 1, 3}, Block{"parents-4", 1, 4}));
  EXPECT_THAT(blocks(make_space("nasbench1shot1-3")),
              ElementsAre(Block{"operations", 5, 3}, Block{"output", 1, 6}, Block{"parents-2", 1, 2},
                          Block{"parents-3", 1, 3}, Block{"parents-4", 1, 4}, Block{"parents-5", 1, 5}));
  EXPECT_EQ(make_space("nasbench1shot1-3").alpha_size(), 15 + 6 + 2 + 3 + 4 + 5);
  EXPECT_THAT(make_space("nasbench1shot1-2").parents, ElementsAre(1, 1, 2, 2, 3));
  EXPECT_EQ(make_space("darts").nodes, 4);
  EXPECT_EQ(make_space("nasbench1shot1-3").nodes, 5);
}

// Every choice of parents times every choice of operations; the paper counts cells that differ.
TEST(Space, OneShotSpacesHaveTheCountedChoices) {
  const auto choices = [](const char* name) {
    const SearchSpace space = make_space(name);
    double count = std::pow(3.0, static_cast<double>(space.nodes));
    for (size_t i = 0; i < space.parents.size(); ++i) {
      const double n = static_cast<double>(i + 1), k = static_cast<double>(space.parents[i]);
      count *= std::round(std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)));
    }
    return count;
  };
  EXPECT_EQ(choices("nasbench1shot1-1"), 14'580);
  EXPECT_EQ(choices("nasbench1shot1-2"), 29'160);
  EXPECT_EQ(choices("nasbench1shot1-3"), 1'312'200);
}

TEST(Space, ABlockIsAViewOfItsEntries) {
  const SearchSpace space = make_space("nasbench1shot1-2");
  const Tensor flat = at::arange(space.alpha_size(), doubles());
  EXPECT_TRUE(space.block(flat, "output").equal(at::arange(12, 17, doubles()).view({1, 5})));
  const Tensor operations = space.block(flat, "operations");
  EXPECT_EQ(operations.data_ptr(), flat.data_ptr());
  EXPECT_EQ(operations[3][2].item<double>(), 11);
  EXPECT_EQ(space.block(flat, "parents-4")[0][3].item<double>(), 25);
  EXPECT_THAT(message([&] { space.block(flat, "edges"); }),
              AllOf(HasSubstr("no block 'edges'"), HasSubstr("operations, output, parents-2")));
  EXPECT_THAT(message([&] { space.block(flat.narrow(0, 1, 3), "output"); }),
              HasSubstr("must be a vector of 26 entries, not [3]"));
  EXPECT_THAT(message([&] { space.block({}, "output"); }), HasSubstr("26 entries, not none"));
}

TEST(Space, NarrowsToSomeOperationsInTheOfficialOrder) {
  const SearchSpace space = make_space("nasbench201", {"nor_conv_3x3", "skip_connect"});
  EXPECT_THAT(space.operations, ElementsAre("skip_connect", "nor_conv_3x3"));
  EXPECT_THAT(blocks(space), ElementsAre(Block{"edges", 6, 2}));
  EXPECT_THAT(blocks(make_space("nasbench1shot1-1", {"maxpool3x3", "conv1x1-bn-relu"}))[0],
              (Block{"operations", 4, 2}));
  EXPECT_THAT(
      message([] {
        make_space("nasbench201", {"sep_conv_3x3", "none"});
      }),
      AllOf(HasSubstr("'sep_conv_3x3' is not in search space nasbench201"), HasSubstr("nor_conv_1x1")));
  EXPECT_THAT(message([] { make_space("darts", {"none", "none"}); }), HasSubstr("at least two different"));
  EXPECT_THAT(message([] { make_space("nasbench301"); }),
              AllOf(HasSubstr("'nasbench301' is unknown"), HasSubstr("nasbench1shot1-3, darts")));
}

TEST(Space, AlphaStartsSmallAndTheMixtureSumsToOne) {
  for (const std::string& name : space_names()) {
    const SearchSpace space = make_space(name);
    const Tensor alpha = initial_alpha(space, 7, doubles());
    EXPECT_TRUE(alpha.equal(initial_alpha(space, 7, doubles())));
    EXPECT_FALSE(alpha.equal(initial_alpha(space, 8, doubles())));
    EXPECT_NEAR(alpha.square().mean().sqrt().item<double>(), 1e-3, 5e-4) << name;
    const Tensor mixture = mixture_weights(space, alpha + at::arange(alpha.numel(), doubles()) / 10);
    for (const AlphaBlock& block : space.alpha) {
      const Tensor rows = space.block(mixture, block.name);
      EXPECT_LT((rows.sum(1) - 1).abs().max().item<double>(), 1e-14);
      // softmax: neighbours of a row differ by the factor exp(0.1), but for the small start
      EXPECT_NEAR((rows[0][1] / rows[0][0]).item<double>(), std::exp(0.1), 1e-2);
    }
  }
}

TEST(Space, TheMixtureIsDifferentiable) {
  const SearchSpace space = make_space("nasbench1shot1-1");
  const Tensor alpha = test::random_vector(space.alpha_size(), 3);
  const Tensor v = test::random_vector(space.alpha_size(), 4);
  const auto f = [&](const Tensor& a) { return (mixture_weights(space, a) * v).sum().item<double>(); };
  const at::AutoGradMode enable(true);
  const Tensor leaf = alpha.detach().requires_grad_(true);
  const Tensor g = torch::autograd::grad({(mixture_weights(space, leaf) * v).sum()}, {leaf})[0];
  EXPECT_LT(test::relative_error(g, test::finite_differences(f, alpha)), 1e-8);
}

}  // namespace
}  // namespace bilevel::nas
