#include "bilevel/core/random.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

namespace bilevel {
namespace {

using ::testing::ElementsAre;

// The references come from a Python transcription of the authors' C programs (prng.di.unimi.it).
TEST(Random, bits_are_those_of_xoshiro256_seeded_by_splitmix64) {
  Random zero(0);
  EXPECT_EQ(zero.next(), 0x99ec5f36cb75f2b4U);
  EXPECT_EQ(zero.next(), 0xbf6e1f784956452aU);
  EXPECT_EQ(zero.next(), 0x1a5f849d4933e6e0U);
  EXPECT_EQ(zero.next(), 0x6aa594f1262d2d2cU);
  Random random(42);
  EXPECT_EQ(random.next(), 0x15780b2e0c2ec716U);
  EXPECT_EQ(random.next(), 0x6104d9866d113a7eU);
}

TEST(Random, derived_values_are_stable) {
  Random uniform(42);
  EXPECT_EQ(uniform.uniform(), 0.08386297105988216);
  EXPECT_EQ(uniform.uniform(), 0.3789802506626686);
  Random normal(42);  // a logarithm's last bit belongs to the C library
  EXPECT_NEAR(normal.normal(), -0.7262191382447857, 1e-14);
  EXPECT_NEAR(normal.normal(), -0.21119691823195985, 1e-14);
  EXPECT_NEAR(normal.normal(), 0.2216227015035933, 1e-14);
  Random below(42);
  std::vector<int64_t> dice;
  for (int i = 0; i < 8; ++i) dice.push_back(below.below(6));
  EXPECT_THAT(dice, ElementsAre(0, 3, 5, 5, 4, 5, 2, 2));
  const Tensor order = Random(42).permutation(10);
  EXPECT_TRUE(order.equal(at::tensor(std::vector<int64_t>{0, 3, 9, 2, 4, 7, 8, 5, 6, 1})));
}

TEST(Random, seeds_are_stable_and_their_order_and_names_matter) {
  EXPECT_EQ(mix_seeds(0, 0), 0xa706dd2f4d197e6fU);
  EXPECT_EQ(mix_seeds(1, 2), 0xbcd9dbb49673066bU);
  EXPECT_EQ(mix_seeds(2, 1), 0xe06dd043328bd285U);
  EXPECT_EQ(named_seed(7, "inner"), 0x81bd2000aa99eb2dU);
  std::set<uint64_t> seeds;
  for (uint64_t root = 0; root < 100; ++root) {
    for (const char* name : {"", "inner", "outer", "inner "}) seeds.insert(named_seed(root, name));
  }
  EXPECT_EQ(seeds.size(), 400U);
}

TEST(Random, mixing_flips_half_the_bits_when_one_bit_of_a_seed_flips) {
  double flipped = 0;
  for (int bit = 0; bit < 64; ++bit) {
    flipped += std::popcount(mix_seeds(5, 9) ^ mix_seeds(5 ^ (uint64_t{1} << bit), 9));
    flipped += std::popcount(mix_seeds(5, 9) ^ mix_seeds(5, 9 ^ (uint64_t{1} << bit)));
  }
  EXPECT_NEAR(flipped / 128, 32, 4 * 4 / std::sqrt(128));  // a binomial's mean, within four deviations
}

TEST(Random, moments_of_the_normal_and_the_uniform) {
  constexpr int64_t count = 1000000;
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const Tensor normal = Random(1).normal({count}, options);
  const double deviation = 1 / std::sqrt(count);
  // Variances of the sample moments of a standard normal: 1, 2, 15, 96.
  EXPECT_NEAR(normal.mean().item<double>(), 0, 4 * deviation);
  EXPECT_NEAR(normal.pow(2).mean().item<double>(), 1, 4 * deviation * std::sqrt(2));
  EXPECT_NEAR(normal.pow(3).mean().item<double>(), 0, 4 * deviation * std::sqrt(15));
  EXPECT_NEAR(normal.pow(4).mean().item<double>(), 3, 4 * deviation * std::sqrt(96));
  // The two values of one polar draw are unrelated.
  const Tensor pairs = normal.view({-1, 2});
  EXPECT_NEAR((pairs.select(1, 0) * pairs.select(1, 1)).mean().item<double>(), 0,
              4 * deviation * std::sqrt(2));
  EXPECT_NEAR(normal.abs().gt(1.959963985).to(at::kDouble).mean().item<double>(), 0.05, 4 * deviation * 0.22);

  const Tensor uniform = Random(2).uniform({count}, options);
  EXPECT_NEAR(uniform.mean().item<double>(), 0.5, 4 * deviation / std::sqrt(12));
  EXPECT_NEAR(uniform.var().item<double>(), 1.0 / 12, 4 * deviation / std::sqrt(180));
  EXPECT_GE(uniform.min().item<double>(), 0);
  EXPECT_LT(uniform.max().item<double>(), 1);
}

TEST(Random, below_is_uniform_and_within_its_bound) {
  Random random(3);
  std::vector<int64_t> counts(7);
  constexpr int64_t draws = 70000;
  for (int64_t i = 0; i < draws; ++i) ++counts.at(static_cast<size_t>(random.below(7)));
  double chi_square = 0;
  for (const int64_t count : counts) chi_square += std::pow(static_cast<double>(count) - 1e4, 2) / 1e4;
  EXPECT_LT(chi_square, 22.46);  // 6 degrees of freedom, probability 0.001
  EXPECT_EQ(random.below(1), 0);
  const int64_t largest = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 100; ++i) EXPECT_GE(random.below(largest), 0);
  EXPECT_THROW(random.below(0), std::invalid_argument);
  EXPECT_THROW(random.below(-3), std::invalid_argument);
}

TEST(Random, permutation_holds_everything_once_and_every_order_is_as_likely) {
  Random random(4);
  for (const int64_t count : {0, 1, 2, 17, 1000}) {
    const Tensor order = random.permutation(count);
    EXPECT_TRUE(std::get<0>(order.sort()).equal(at::arange(count, at::kLong)));
  }
  std::map<int64_t, int64_t> seen;
  for (int i = 0; i < 24000; ++i) {
    const Tensor order = random.permutation(4);
    const int64_t* p = order.data_ptr<int64_t>();
    ++seen[p[0] * 1000 + p[1] * 100 + p[2] * 10 + p[3]];
  }
  ASSERT_EQ(seen.size(), 24U);
  double chi_square = 0;
  for (const auto& [order, count] : seen) chi_square += std::pow(static_cast<double>(count) - 1000, 2) / 1000;
  EXPECT_LT(chi_square, 49.73);  // 23 degrees of freedom, probability 0.001
  EXPECT_THROW(random.permutation(-1), std::invalid_argument);
}

TEST(Random, tensors_hold_the_same_values_for_every_dtype_device_and_shape) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  Random scalars(5);
  const Tensor tensor = Random(5).normal({3, 5}, options);
  for (int64_t i = 0; i < 15; ++i) EXPECT_EQ(tensor.view(-1)[i].item<double>(), scalars.normal());

  std::vector<at::Device> devices{at::kCPU};
  if (at::hasCUDA()) devices.emplace_back(at::kCUDA);
  for (const at::Device device : devices) {
    const Tensor single = Random(5).normal({15}, options.dtype(at::kFloat).device(device));
    EXPECT_EQ(single.scalar_type(), at::kFloat);
    EXPECT_EQ(single.device().type(), device.type());
    EXPECT_TRUE(single.cpu().equal(tensor.view(-1).to(at::kFloat)));
  }
  EXPECT_EQ(Random(5).uniform({0, 3}, options).numel(), 0);
  EXPECT_EQ(Random(5).uniform({}, options).dim(), 0);
  EXPECT_THROW(Random(5).uniform({2}, options.dtype(at::kLong)), std::invalid_argument);
  EXPECT_THROW(Random(5).normal({2}, options.dtype(at::kBool)), std::invalid_argument);
}

TEST(Random, uniform_tensors_of_short_types_do_not_round_up_to_one) {
  // In half precision one value in 4096 would: among a million the check has no way to miss it.
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const Tensor values = Random(6).uniform({1000000}, at::TensorOptions().dtype(type));
    EXPECT_LT(values.to(at::kDouble).max().item<double>(), 1) << type;
    const Tensor rounded = Random(6).uniform({1000000}, at::TensorOptions().dtype(at::kDouble)).to(type);
    EXPECT_EQ(rounded.to(at::kDouble).max().item<double>(), 1) << type;
  }
}

}  // namespace
}  // namespace bilevel
