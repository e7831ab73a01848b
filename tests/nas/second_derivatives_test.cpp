// The operations with hand-written derivatives against LibTorch's: values, first and second derivatives.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/nas/batch_norm.h"
#include "bilevel/nas/box_pool.h"
#include "bilevel/nas/convolution.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::random_like;
using torch::autograd::grad;
using Operation = std::function<Tensor(const std::vector<Tensor>&)>;

// The value, the gradients of <c, y> in the inputs, and those of <v, gradients> in the inputs and in c.
std::vector<Tensor> two_orders(const Operation& operation, const std::vector<Tensor>& at) {
  std::vector<Tensor> inputs;
  for (const Tensor& t : at) inputs.push_back(t.detach().clone().requires_grad_(true));
  const Tensor y = operation(inputs);
  const Tensor c = random_like(y.detach(), 11).requires_grad_(true);
  const std::vector<Tensor> first = grad({y}, inputs, {c}, true, true);
  std::vector<Tensor> v, result = {y.detach()};
  for (const Tensor& g : first) {
    v.push_back(random_like(g.detach(), 12 + v.size()));
    result.push_back(g.detach());
  }
  inputs.push_back(c);
  for (const Tensor& h : grad(first, inputs, v, true, false, /*allow_unused=*/true)) {
    result.push_back(h.defined() ? h : at::zeros({1}, doubles()));
  }
  return result;
}

void expect_same(const Operation& ours, const Operation& theirs, const std::vector<Tensor>& at) {
  const std::vector<Tensor> a = two_orders(ours, at), b = two_orders(theirs, at);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), 1e-10 * (1 + b[i].abs().max().item<double>()))
        << "result " << i;
  }
}

Tensor random(std::vector<int64_t> shape, uint64_t seed) {
  return random_like(at::zeros(shape, doubles()), seed);
}

TEST(SecondDerivatives, BatchNormLearned) {
  expect_same([](const auto& t) { return normalize_batch(t[0], t[1], t[2], 1e-5); },
              [](const auto& t) { return at::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false); },
              {random({5, 3, 4, 7}, 1), random({3}, 2), random({3}, 3)});
}

TEST(SecondDerivatives, BatchNormPlain) {
  expect_same([](const auto& t) { return normalize_batch(t[0], {}, {}, 1e-5); },
              [](const auto& t) { return at::batch_norm(t[0], {}, {}, {}, {}, true, 0.1, 1e-5, false); },
              {random({6, 2, 3, 3}, 1)});
}

TEST(SecondDerivatives, BatchNormOfATransposedImage) {
  expect_same([](const auto& t) { return normalize_batch(t[0].transpose(2, 3), t[1], {}, 1e-5); },
              [](const auto& t) {
                return at::batch_norm(t[0].transpose(2, 3), t[1], {}, {}, {}, true, 0.1, 1e-5, false);
              },
              {random({4, 3, 5, 2}, 1), random({3}, 2)});
}

TEST(SecondDerivatives, Convolutions) {
  for (const ConvolutionForm& f : {ConvolutionForm{.padding = 1}, ConvolutionForm{.stride = 2, .padding = 1},
                                   ConvolutionForm{.padding = 2, .dilation = 2, .groups = 2}}) {
    expect_same(
        [&](const auto& t) { return convolution(t[0], t[1], f); },
        [&](const auto& t) { return at::conv2d(t[0], t[1], {}, f.stride, f.padding, f.dilation, f.groups); },
        {random({3, 4, 6, 5}, 1), random({6, 4 / f.groups, 3, 3}, 2)});
  }
}

// Only one of the two inputs is asked for: the stem's images, and weights in a gradient of alpha.
TEST(SecondDerivatives, ConvolutionsOfConstants) {
  const Tensor image = random({3, 4, 6, 5}, 1), weights = random({6, 4, 3, 3}, 2);
  expect_same([&](const auto& t) { return convolution(image, t[0].square(), {.padding = 1}); },
              [&](const auto& t) { return at::conv2d(image, t[0].square(), {}, 1, 1); }, {weights});
  expect_same([&](const auto& t) { return convolution(t[0].square(), weights, {.padding = 1}); },
              [&](const auto& t) { return at::conv2d(t[0].square(), weights, {}, 1, 1); }, {image});
}

TEST(SecondDerivatives, AveragePoolOfAnySize) {
  for (const auto& [height, width] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 4}, {2, 2}, {3, 1}, {2, 5}, {8, 8}, {9, 7}}) {
    // The square makes a second derivative that is not zero.
    expect_same([](const auto& t) { return box_pool(t[0].square()).square(); },
                [](const auto& t) { return at::avg_pool2d(t[0].square(), 3, 1, 1, false, false).square(); },
                {random({2, 3, height, width}, 1)});
  }
}

TEST(SecondDerivatives, ThirdOnesAreRefusedNotWrong) {
  const auto message = [](const Operation& operation, const Tensor& at) {
    const Tensor x = at.clone().requires_grad_(true);
    const Tensor first = grad({operation({x}).square().sum()}, {x}, {}, true, true)[0];
    try {
      grad({first.square().sum()}, {x}, {}, true, true);
    } catch (const std::logic_error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(
      message([](const auto& t) { return normalize_batch(t[0], {}, {}, 1e-5); }, random({4, 2, 3, 3}, 1)),
      ::testing::HasSubstr("batch norm: third derivatives"));
  EXPECT_THAT(message(
                  [](const auto& t) {
                    return convolution(t[0], random({2, 2, 3, 3}, 2), {});
                  },
                  random({4, 2, 3, 3}, 1)),
              ::testing::HasSubstr("a convolution: third derivatives"));
}

}  // namespace
}  // namespace bilevel::nas
