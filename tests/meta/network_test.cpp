// Networks: the papers' parameter counts, the layers against LibTorch's own modules' arithmetic, and tasks
// that do not see each other.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "bilevel/meta/network.h"
#include "bilevel/meta/networks.h"
#include "tests/meta/small_tasks.h"

namespace bilevel::meta {
namespace {

TEST(Networks, omniglot_has_the_papers_parameters) {
  const Network whole = make_network({.name = "omniglot", .filters = 64}, {1, 28, 28}, 5);
  EXPECT_EQ(whole.first(2).parameters(), 640 + 36928);
  EXPECT_EQ(whole.rest(2).parameters(), 74181);  // docs/mathematics.md: w
  EXPECT_EQ(whole.first(4).output_size(), 64);
  EXPECT_EQ(whole.rest(2).parameters_by_layer(), (std::vector<int64_t>{36928, 36928, 325}));
}

TEST(Networks, conv4_has_the_papers_features) {
  EXPECT_EQ(make_network({.name = "conv4", .filters = 64}, {3, 32, 32}, 5).first(4).output_size(), 256);
  EXPECT_EQ(make_network({.name = "conv4", .filters = 32}, {3, 84, 84}, 5).first(4).output_size(), 800);
}

TEST(Networks, bad_sizes_are_named) {
  EXPECT_THROW(make_network({.name = "conv4", .filters = 64}, {3, 8, 8}, 5), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "resnet"}, {3, 8, 8}, 5), std::invalid_argument);
  EXPECT_THROW(make_network({.name = "mlp", .filters = 0}, {3}, 5), std::invalid_argument);
}

// One block by hand, with each task's statistics taken from its own examples.
Tensor block_by_hand(const Tensor& images, const Tensor& weight, const Tensor& scale, const Tensor& shift,
                     bool pool_first) {
  Tensor a = at::conv2d(images, weight, {}, 1, 1);
  if (pool_first) a = at::max_pool2d(a, 2);
  const Tensor mean = a.mean(at::IntArrayRef{0, 2, 3}, true);
  const Tensor variance = (a - mean).square().mean(at::IntArrayRef{0, 2, 3}, true);
  a = (a - mean) / (variance + 1e-5).sqrt();
  if (scale.defined()) a = a * scale.view({1, -1, 1, 1}) + shift.view({1, -1, 1, 1});
  a = a.relu();
  return pool_first ? a : at::max_pool2d(a, 2);
}

class Convolutions : public testing::TestWithParam<bool> {};

TEST_P(Convolutions, blocks_are_those_by_hand_for_shared_and_for_own_weights) {
  const bool pool_first = GetParam();
  const auto kind = pool_first ? Layer::Kind::convolution_pool_norm : Layer::Kind::convolution_norm_pool;
  const Network network({2, 8, 8}, {{kind, 3}, {kind, 4}, {Layer::Kind::linear, 5}});
  const TaskBatch tasks = small_tasks(3, {2, 8, 8});
  Random random(7);
  const Tensor own = random.normal({3, network.parameters()}, at::kDouble);
  const auto by_hand = [&](const Tensor& images, const Tensor& weights) {
    const std::vector<Tensor> part = network.layout().split(weights);
    const size_t each = pool_first ? 2 : 4;
    const auto extra = [&](size_t block, size_t which) {
      return pool_first ? Tensor() : part[block * each + which];
    };
    Tensor a = block_by_hand(images, part[0], extra(0, 2), extra(0, 3), pool_first);
    a = block_by_hand(a, part[each], extra(1, 2), extra(1, 3), pool_first);
    return at::addmm(part[2 * each + 1], a.flatten(1), part[2 * each].t());
  };
  const Tensor with_own = network(tasks.train_inputs, own);
  const Tensor with_shared = network(tasks.train_inputs, own[0].contiguous());
  ASSERT_EQ(with_own.sizes(), (at::IntArrayRef{3, 6, 5}));
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_LT(relative_distance(with_own[i], by_hand(tasks.train_inputs[i], own[i])), 1e-12);
    EXPECT_LT(relative_distance(with_shared[i], by_hand(tasks.train_inputs[i], own[0])), 1e-12);
  }
}
INSTANTIATE_TEST_SUITE_P(Orders, Convolutions, testing::Bool());

TEST(Networks, two_halves_make_the_whole) {
  const Network whole = make_network({.name = "omniglot", .filters = 4}, {1, 16, 16}, 3);
  const TaskBatch tasks = small_tasks(2, {1, 16, 16});
  const Tensor w = whole.initial(3, at::kDouble);
  const int64_t cut = whole.first(2).parameters();
  const Tensor first = whole.first(2)(tasks.valid_inputs, w.narrow(0, 0, cut));
  const Tensor both = whole.rest(2)(first, w.narrow(0, cut, w.size(0) - cut));
  EXPECT_LT(relative_distance(both, whole(tasks.valid_inputs, w)), 1e-12);
}

}  // namespace
}  // namespace bilevel::meta
