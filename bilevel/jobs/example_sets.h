#pragma once
// A user's own examples in memory, for the jobs that otherwise read them from files.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "bilevel/data/example_set.h"
#include "bilevel/data/table_schema.h"

namespace bilevel {

struct ExampleSets {
  ExampleSet train = {}, valid = {}, test = {};  // an empty one = there is none
  std::vector<std::string> class_names = {};     // left out: 0, 1 ..., as many as the training labels need
  std::vector<std::string> feature_names = {};   // left out: column 0, column 1 ...
  // Filled in by completed(): how new examples meet a model of these. Columns that were given names are
  // matched by name, as those of tables are; others by position.
  TableSchema schema = {};
};

// The same with what was left out, in the types that jobs work with: features in `dtype` on the CPU, labels
// int64. Bytes (uint8) are divided by 255, as files of bytes are, and are not mixed with other numbers.
// Throws std::invalid_argument naming the set and the example where rows and labels do not fit, a number is
// not finite, or a label is no class; and naming the class that has no training example.
ExampleSets completed(ExampleSets data, at::ScalarType dtype);
// The same for a regression: labels may be any finite numbers and become doubles, and there are no classes.
ExampleSets completed_numbers(ExampleSets data, at::ScalarType dtype);

}  // namespace bilevel
