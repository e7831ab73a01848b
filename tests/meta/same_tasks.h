#pragma once
// What every source of tasks must do, whatever it is made of.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "bilevel/meta/tasks.h"

namespace bilevel::test {

inline bool same_bits(const Tensor& a, const Tensor& b) { return at::equal(a, b); }
inline bool same_bits(const meta::TaskBatch& a, const meta::TaskBatch& b) {
  return same_bits(a.train_inputs, b.train_inputs) && same_bits(a.train_targets, b.train_targets) &&
         same_bits(a.valid_inputs, b.valid_inputs) && same_bits(a.valid_targets, b.valid_targets);
}

// Tasks `from` .. `from` + `count` - 1 of a batch.
inline meta::TaskBatch some_of(const meta::TaskBatch& batch, int64_t from, int64_t count) {
  return {batch.train_inputs.narrow(0, from, count), batch.train_targets.narrow(0, from, count),
          batch.valid_inputs.narrow(0, from, count), batch.valid_targets.narrow(0, from, count)};
}

using MakeSource = std::function<std::unique_ptr<meta::TaskSource>(uint64_t seed)>;

// Tasks are a pure function of seed, part and number.
inline void expect_replayable(const MakeSource& make) {
  using meta::Part;
  const auto source = make(7);
  const auto twin = make(7);
  const auto other = make(8);
  for (const Part part : {Part::train, Part::valid, Part::test}) {
    SCOPED_TRACE(meta::part_name(part));
    const meta::TaskBatch all = source->tasks(part, 0, 6);
    EXPECT_EQ(all.tasks(), 6);
    EXPECT_TRUE(same_bits(all, source->tasks(part, 0, 6)));
    EXPECT_TRUE(same_bits(all, twin->tasks(part, 0, 6)));
    EXPECT_TRUE(same_bits(some_of(all, 3, 2), twin->tasks(part, 3, 2)));
    EXPECT_TRUE(same_bits(some_of(all, 1, 1), twin->tasks(part, 1, 1)));
    EXPECT_FALSE(same_bits(all.train_inputs, other->tasks(part, 0, 6).train_inputs));
    for (int64_t i = 1; i < 6; ++i) {
      EXPECT_FALSE(same_bits(all.train_inputs[0], all.train_inputs[i])) << i;
      EXPECT_FALSE(same_bits(all.valid_inputs[0], all.valid_inputs[i])) << i;
    }
  }
  EXPECT_FALSE(same_bits(source->tasks(Part::train, 0, 1).train_inputs,
                         source->tasks(Part::valid, 0, 1).train_inputs));
  EXPECT_FALSE(
      same_bits(source->tasks(Part::test, 0, 1).train_inputs, source->tasks(Part::valid, 0, 1).train_inputs));
  EXPECT_THROW(source->tasks(Part::train, -1, 1), std::invalid_argument);
  EXPECT_THROW(source->tasks(Part::train, 0, 0), std::invalid_argument);
}

// Shapes, and targets class by class.
inline void expect_shapes(const meta::TaskSource& source, const meta::TaskShape& shape,
                          const at::TensorOptions& tensors) {
  const meta::TaskBatch batch = source.tasks(meta::Part::train, 2, 3);
  const auto sizes = [&](int64_t examples, const std::vector<int64_t>& rest) {
    std::vector<int64_t> all{3, examples};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  };
  const int64_t ways = source.regression() ? 1 : shape.ways;
  const int64_t n = ways * shape.shots, m = ways * shape.queries;
  EXPECT_EQ(batch.train_inputs.sizes(), sizes(n, source.input_shape()));
  EXPECT_EQ(batch.valid_inputs.sizes(), sizes(m, source.input_shape()));
  EXPECT_EQ(batch.train_inputs.scalar_type(), c10::typeMetaToScalarType(tensors.dtype()));
  EXPECT_EQ(batch.valid_inputs.scalar_type(), c10::typeMetaToScalarType(tensors.dtype()));
  if (source.regression()) {
    EXPECT_EQ(batch.train_targets.sizes(), sizes(n, {source.outputs()}));
    EXPECT_EQ(batch.valid_targets.sizes(), sizes(m, {source.outputs()}));
    EXPECT_EQ(batch.train_targets.scalar_type(), batch.train_inputs.scalar_type());
    return;
  }
  EXPECT_EQ(source.outputs(), shape.ways);
  EXPECT_EQ(batch.train_targets.scalar_type(), at::kLong);
  for (int64_t task = 0; task < 3; ++task) {
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(batch.train_targets[task][i].item<int64_t>(), i / shape.shots);
    for (int64_t i = 0; i < m; ++i)
      EXPECT_EQ(batch.valid_targets[task][i].item<int64_t>(), i / shape.queries);
  }
}

}  // namespace bilevel::test
