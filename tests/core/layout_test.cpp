#include "bilevel/core/layout.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/messages.h"

namespace bilevel {
namespace {

using test::message;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A matrix, a scalar, an empty entry and a vector: every kind of shape there is.
Layout example() {
  Layout layout;
  layout.add("matrix", {2, 3});
  layout.add("scalar", {});
  layout.add("empty", {0, 4});
  layout.add("vector", {4});
  return layout;
}

std::vector<at::TensorOptions> kinds() {
  std::vector<at::TensorOptions> result{at::kFloat, at::kDouble};
  if (at::hasCUDA()) result.push_back(at::TensorOptions().dtype(at::kFloat).device(at::kCUDA));
  return result;
}

TEST(Layout, entries_lie_one_after_the_other) {
  const Layout layout = example();
  EXPECT_EQ(layout.size(), 11);
  const std::vector<int64_t> sizes{6, 1, 0, 4};
  const std::vector<int64_t> offsets{0, 6, 7, 7};
  ASSERT_EQ(layout.entries().size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(layout.entries()[i].size, sizes[i]);
    EXPECT_EQ(layout.entries()[i].offset, offsets[i]);
    EXPECT_EQ(layout.find(layout.entries()[i].name), static_cast<int64_t>(i));
  }
}

TEST(Layout, split_gives_shaped_views_and_flatten_is_its_inverse) {
  const Layout layout = example();
  for (const at::TensorOptions& options : kinds()) {
    const Tensor flat = at::arange(11, options);
    const std::vector<Tensor> pieces = layout.split(flat);
    ASSERT_EQ(pieces.size(), 4U);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(pieces[i].sizes(), at::IntArrayRef(layout.entries()[i].shape));
      EXPECT_EQ(pieces[i].scalar_type(), flat.scalar_type());
    }
    EXPECT_EQ(pieces[0][1][2].item<double>(), 5);
    EXPECT_EQ(pieces[1].item<double>(), 6);
    EXPECT_EQ(pieces[3][0].item<double>(), 7);
    EXPECT_EQ(pieces[3].data_ptr(), flat.narrow(0, 7, 4).data_ptr());  // no copy
    EXPECT_TRUE(layout.flatten(pieces).equal(flat));
  }
}

TEST(Layout, split_takes_vectors_that_are_not_contiguous) {
  const Layout layout = example();
  const Tensor flat = at::arange(22, at::kDouble).view({11, 2}).select(1, 1);  // 1, 3, 5, ...
  EXPECT_EQ(layout.split(flat)[0][1][0].item<double>(), 7);
  EXPECT_EQ(layout.split(at::ones({1}, at::kDouble).expand({11}))[0].sum().item<double>(), 6);
  std::vector<Tensor> pieces = layout.split(flat);
  pieces[0] = pieces[0].t().contiguous().t();  // the same values, other strides
  EXPECT_TRUE(layout.flatten(pieces).equal(flat));
}

TEST(Layout, split_and_flatten_are_differentiable_twice) {
  const Layout layout = example();
  for (const at::TensorOptions& options : kinds()) {
    const Tensor flat = at::arange(11, options).add(1).requires_grad_();
    const std::vector<Tensor> pieces = layout.split(flat);
    // sum of matrix^3 + scalar * sum of vector^2
    const Tensor loss = pieces[0].pow(3).sum() + pieces[1] * pieces[3].square().sum();
    const Tensor gradient = torch::autograd::grad({loss}, {flat}, {}, {}, /*create_graph=*/true)[0];
    const Tensor matrix = at::arange(1, 7, options);
    const Tensor vector = at::arange(8, 12, options);
    const Tensor expected = at::cat({3 * matrix.square(), vector.square().sum().view(1), 2 * 7 * vector});
    EXPECT_TRUE(gradient.allclose(expected));
    const Tensor second = torch::autograd::grad({gradient.sum()}, {flat})[0];
    const Tensor expected_second = at::cat({6 * matrix, 2 * vector.sum().view(1), 2 * 7 + 2 * vector});
    EXPECT_TRUE(second.allclose(expected_second));

    const Tensor again =
        torch::autograd::grad({layout.flatten(layout.split(flat)).square().sum()}, {flat})[0];
    EXPECT_TRUE(again.equal(2 * flat.detach()));
  }
}

TEST(Layout, split_is_one_node_of_the_graph_for_all_pieces) {
  const Layout layout = example();
  const Tensor flat = at::ones({11}, at::kDouble).requires_grad_();
  const std::vector<Tensor> pieces = layout.split(flat);
  const auto* of_vector = pieces[3].grad_fn().get();
  EXPECT_THAT(of_vector->name(), HasSubstr("SplitWithSizes"));
  EXPECT_EQ(pieces[0].grad_fn()->next_edge(0).function.get(), of_vector);
  EXPECT_EQ(pieces[1].grad_fn()->next_edge(0).function.get(), of_vector);
}

TEST(Layout, repeat_per_entry_gives_every_element_its_entrys_value) {
  const Layout layout = example();
  for (const at::TensorOptions& options : kinds()) {
    const Tensor rates = at::arange(1, 5, options).requires_grad_();
    const Tensor repeated = layout.repeat_per_entry(rates);
    EXPECT_TRUE(repeated.equal(
        at::cat({at::full({6}, 1, options), at::full({1}, 2, options), at::full({4}, 4, options)})));
    const Tensor weights = at::arange(11, options);
    const Tensor gradient = torch::autograd::grad({(weights * repeated.square()).sum()}, {rates})[0];
    // 2 * rate * the entry's sum of weights: 0+..+5, 6, nothing, 7+..+10
    const std::vector<double> expected{2 * 1 * 15, 2 * 2 * 6, 0, 2 * 4 * 34};
    EXPECT_TRUE(gradient.equal(at::tensor(expected).to(options.device(), gradient.scalar_type())));
  }
}

TEST(Layout, an_empty_layout_has_nothing_to_split) {
  const Layout layout;
  EXPECT_EQ(layout.size(), 0);
  EXPECT_TRUE(layout.split(at::empty({0}, at::kDouble)).empty());
  EXPECT_EQ(layout.flatten({}).numel(), 0);
  EXPECT_EQ(layout.repeat_per_entry(at::empty({0}, at::kDouble)).scalar_type(), at::kDouble);
}

TEST(Layout, misuse_is_named) {
  Layout layout = example();
  EXPECT_THAT(message([&] { layout.add("matrix", {1}); }),
              AllOf(HasSubstr("'matrix' is taken"), HasSubstr("(2, 3)")));
  EXPECT_THAT(message([&] { layout.add("bad", {2, -1}); }), AllOf(HasSubstr("'bad'"), HasSubstr("(2, -1)")));
  const int64_t huge = int64_t{1} << 32;
  EXPECT_THAT(message([&] { layout.add("product", {huge, huge}); }), HasSubstr("64 bits"));
  EXPECT_THAT(message([&] { layout.add("total", {std::numeric_limits<int64_t>::max() - 3}); }),
              HasSubstr("64 bits"));
  EXPECT_EQ(layout.size(), 11);  // what was refused left no trace
  EXPECT_EQ(layout.entries().size(), 4U);
  EXPECT_THAT(message([&] { layout.find("weight"); }),
              AllOf(HasSubstr("'weight'"), HasSubstr("matrix, scalar, empty, vector")));

  EXPECT_THAT(message([&] { layout.split(at::zeros({10})); }), AllOf(HasSubstr("11"), HasSubstr("(10)")));
  EXPECT_THAT(message([&] { layout.split(at::zeros({1, 11})); }), HasSubstr("(1, 11)"));
  EXPECT_THAT(message([&] { layout.split(Tensor()); }), HasSubstr("undefined"));
  EXPECT_THAT(message([&] { layout.repeat_per_entry(at::zeros({3})); }), HasSubstr("4 elements"));

  std::vector<Tensor> pieces = layout.split(at::zeros({11}));
  pieces[3] = at::zeros({5});
  EXPECT_THAT(message([&] { layout.flatten(pieces); }), AllOf(HasSubstr("'vector'"), HasSubstr("(5)")));
  pieces[3] = at::zeros({4}, at::kDouble);
  EXPECT_THAT(message([&] { layout.flatten(pieces); }), AllOf(HasSubstr("Double"), HasSubstr("Float")));
  pieces.pop_back();
  EXPECT_THAT(message([&] { layout.flatten(pieces); }), AllOf(HasSubstr("4 tensors"), HasSubstr("got 3")));
}

}  // namespace
}  // namespace bilevel
