#pragma once
// What a search for regularisers works on: training and validation examples and perhaps a test set, from the
// user's files or from 20 Newsgroups. Where there is no validation set, a seeded part of the training
// examples becomes it, with the classes in their proportions.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/example_set.h"
#include "bilevel/data/feature_files.h"
#include "bilevel/data/newsgroups.h"
#include "bilevel/problems/labelled_rows.h"

namespace bilevel {

// As a search takes them: divided, and as the closed forms read them.
struct RegularizerSets {
  LabelledRows train, valid;
  std::optional<LabelledRows> test;
  int64_t classes = 0;
  int64_t nonzeros = 0;                    // of all that was given for training, before a split
  std::vector<std::string> class_names;    // what class k stands for: a name, or the label in the file
  std::vector<std::string> feature_names;  // of the columns; "column 7" for unnamed ones
};

struct RegularizerFileOptions {
  LabelledFile train, valid, test;  // empty features = there is none
  std::string feature_names;        // a file with one name a line; empty = none
  FeatureFileOptions reading;
  double valid_part = 0.5;  // of the training file, where there is no validation file; in (0, 1)
  uint64_t seed = 0;        // of that split
  bool bias = false;        // append a column of ones, which gets a regulariser of its own
  void validate() const;    // throws std::invalid_argument
};

// The files as they are: no split, and no other form of the features.
struct TableSets {
  ExampleSet train, valid, test;      // empty = there is none
  int64_t classes = 0, nonzeros = 0;  // of a regression 1 class, without a name
  std::vector<std::string> class_names, feature_names;
  TableSchema schema;  // of the files
};
// Throws as the function below.
TableSets read_table_sets(const RegularizerFileOptions& options);

// For a search: a seeded part of the training examples for validation where there are no others. `what` names
// them in errors.
RegularizerSets divided(TableSets tables, double valid_part, uint64_t seed, const std::string& what);

// Throws std::runtime_error naming the file, the example, what was expected and what was found: also for a
// class without a training example and for a validation set of one class.
RegularizerSets read_regularizer_sets(const RegularizerFileOptions& options);

// The papers' halves of the training posts, and the test posts.
RegularizerSets read_newsgroup_sets(const std::string& path, const NewsgroupsOptions& options = {},
                                    double valid_part = 0.5, uint64_t seed = 0);

}  // namespace bilevel
