// Batch norm whose statistics are those of all ranks' images, against LibTorch's of the whole batch: values,
// first and second derivatives, in pieces of different sizes.
#include "bilevel/nas/batch_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/distributed/rank_slice.h"
#include "bilevel/nas/batch_ranks.h"
#include "tests/distributed/ranks.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::relative_error;

constexpr double epsilon = 1e-5;
using NormFunction = std::function<Tensor(const Tensor& x, const Tensor& scale, const Tensor& shift)>;

Tensor drawn(uint64_t seed, std::vector<int64_t> shape) { return Random(seed).normal(shape, doubles()); }

// Images far from zero: second moments lose digits there. `loss` is uneven over images and channels.
struct Whole {
  Tensor x = drawn(1, {7, 3, 4, 2}) + 5, factor = drawn(2, {7, 3, 4, 2}), scale = drawn(3, {3}),
         shift = drawn(4, {3});
  Tensor v = drawn(5, {7, 3, 4, 2}), a = drawn(6, {3}), b = drawn(7, {3});  // directions
};

// y, the gradients in x, scale and shift, and the derivatives of their product with v, a and b.
std::vector<Tensor> derivatives(const NormFunction& norm, const Whole& of, int64_t begin, int64_t count) {
  const auto here = [&](const Tensor& t) { return t.narrow(0, begin, count).clone(); };
  const std::vector<Tensor> at = {here(of.x).requires_grad_(true), of.scale.clone().requires_grad_(true),
                                  of.shift.clone().requires_grad_(true)};
  const Tensor y = norm(at[0], at[1], at[2]);
  const Tensor loss = (here(of.factor) * y.sin()).sum();
  const auto first = torch::autograd::grad({loss}, at, {}, true, true);
  const auto second = torch::autograd::grad(first, at, {here(of.v), of.a, of.b});
  std::vector<Tensor> all = {y.detach()};
  for (const auto& each : {first, second}) {
    for (const Tensor& t : each) all.push_back(t.detach());
  }
  return all;
}

void expect_the_same_on_ranks(int size, bool by_operations) {
  const Whole whole;
  const std::vector<Tensor> expected = derivatives(
      [](const Tensor& x, const Tensor& scale, const Tensor& shift) {
        return at::batch_norm(x, scale, shift, {}, {}, true, 0.1, epsilon, false);
      },
      whole, 0, 7);
  test::run_ranks(size, [&](const auto& group) {
    const RankSlice own = slice_of({}, 7, group->rank(), size);
    const BatchRanks ranks = divided_among(group);
    BatchMoments seen;
    std::vector<Tensor> found = derivatives(
        [&](const Tensor& x, const Tensor& scale, const Tensor& shift) {
          return by_operations ? normalize_batch_by_operations(x, scale, shift, epsilon, ranks.norms, &seen)
                               : normalize_batch(x, scale, shift, epsilon, ranks.norms, &seen);
        },
        whole, own.begin, own.count);
    int64_t sums_of_weights = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const bool of_images = found[i].dim() == 4;
      if (!of_images) {
        group->sum_(found[i]);
        ++sums_of_weights;
      }
      const Tensor there = of_images ? expected[i].narrow(0, own.begin, own.count) : expected[i];
      EXPECT_LT(relative_error(found[i], there), 1e-12) << "value " << i << " on rank " << group->rank();
    }
    EXPECT_LT(relative_error(seen.mean, whole.x.mean({0, 2, 3})), 1e-14);
    EXPECT_LT(relative_error(seen.variance, whole.x.var({0, 2, 3}, /*unbiased=*/false)), 1e-13);
    EXPECT_EQ(seen.count, 7 * 8);
    EXPECT_GT(ranks.norms->sent().bytes, 0);
    EXPECT_EQ(without_norms(ranks).calls, sums_of_weights) << "sums of norms are counted apart";
  });
}

TEST(BatchNormOfRanks, has_the_derivatives_of_the_whole_batch) {
  BILEVEL_NEEDS_GLOO();
  for (const int size : {1, 2, 3}) expect_the_same_on_ranks(size, false);
}

TEST(BatchNormOfRanks, has_them_by_tensor_operations_too) {
  BILEVEL_NEEDS_GLOO();
  expect_the_same_on_ranks(3, true);
}

// One call in the value, one in the gradient, two in the product with the second derivative, which goes back
// through the value too.
TEST(BatchNormOfRanks, takes_four_sums_that_are_counted_apart) {
  BILEVEL_NEEDS_GLOO();
  test::run_ranks(2, [&](const auto& group) {
    const RankSlice own = slice_of({}, 7, group->rank(), 2);
    const BatchRanks ranks = divided_among(group);
    derivatives([&](const Tensor& x, const Tensor& scale,
                    const Tensor& shift) { return normalize_batch(x, scale, shift, epsilon, ranks.norms); },
                Whole(), own.begin, own.count);
    EXPECT_EQ(ranks.norms->sent().calls, 4);
    EXPECT_EQ(ranks.norms->sent().bytes, (3 + 2 + 5 + 2) * 3 * 8);
    EXPECT_EQ(without_norms(ranks).calls, 0);
  });
}

}  // namespace
}  // namespace bilevel::nas
