#pragma once
// Images that say which they are: the first pixel is the class, the second the number within it. Seen through
// a scale of mean 0 and deviation 1, a sampled task can be read back.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "bilevel/meta/image_tasks.h"

namespace bilevel::test {

using Identity = std::pair<int64_t, int64_t>;

inline Identity identity(const Tensor& image) {
  const Tensor flat = image.reshape({-1});
  return {flat[0].item<int64_t>(), flat[1].item<int64_t>()};
}

// Reads tasks of every part: the classes of a task differ, all examples of a label are of one class, the
// training and validation examples of a task are disjoint, and no class is met in two parts. Returns the
// classes met in each.
inline std::vector<std::set<int64_t>> expect_honest_tasks(const meta::TaskSource& source,
                                                          const meta::TaskShape& shape, int64_t tasks) {
  std::vector<std::set<int64_t>> met;
  for (const meta::Part part : {meta::Part::train, meta::Part::valid, meta::Part::test}) {
    SCOPED_TRACE(meta::part_name(part));
    const meta::TaskBatch batch = source.tasks(part, 0, tasks);
    std::set<int64_t> classes;
    for (int64_t task = 0; task < tasks; ++task) {
      std::vector<std::set<int64_t>> of_label(static_cast<size_t>(shape.ways));
      std::set<Identity> examples;
      const auto look = [&](const Tensor& inputs, const Tensor& targets) {
        for (int64_t i = 0; i < inputs.size(0); ++i) {
          const Identity who = identity(inputs[i]);
          EXPECT_TRUE(examples.insert(who).second) << "an example comes twice in task " << task;
          of_label[static_cast<size_t>(targets[i].item<int64_t>())].insert(who.first);
        }
      };
      look(batch.train_inputs[task], batch.train_targets[task]);
      look(batch.valid_inputs[task], batch.valid_targets[task]);
      std::set<int64_t> in_task;
      for (const std::set<int64_t>& label : of_label) {
        EXPECT_EQ(label.size(), 1U) << "a label is one class";
        in_task.insert(label.begin(), label.end());
      }
      EXPECT_EQ(static_cast<int64_t>(in_task.size()), shape.ways);
      classes.merge(in_task);
    }
    EXPECT_EQ(static_cast<int64_t>(classes.size()), source.classes(part)) << "enough tasks meet every class";
    for (const std::set<int64_t>& others : met) {
      for (const int64_t k : classes) EXPECT_FALSE(others.count(k)) << "class " << k << " is in two parts";
    }
    met.push_back(classes);
  }
  return met;
}

}  // namespace bilevel::test
