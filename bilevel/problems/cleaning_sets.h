#pragma once
// What a cleaning job works on: noisy training examples, clean validation examples and perhaps a test set,
// from a named image set with noise drawn on it, or from the user's files.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/example_set.h"
#include "bilevel/data/feature_files.h"
#include "bilevel/problems/cleaning_data.h"
#include "bilevel/problems/labelled_rows.h"

namespace bilevel {

struct CleaningSets {
  ExampleSet train, valid, test;  // an empty test set = there is none
  int64_t classes = 0;
  std::vector<int64_t> label_values;  // the label that stands for class k in the files, where it is a number
  std::vector<std::string> class_names;  // the same for a reader: a name, or the label
  bool has_names = false;                // the files have the names
  Tensor
      train_rows;  // int64: which rows of the training file the examples are; undefined = all, in their order
  TableSchema schema;  // of the files
  // Where the truth is known, as label_noise.h has it: the training labels before the noise, which were drawn
  // anew, which differ. Undefined otherwise.
  Tensor clean, replaced, wrong;
  Tensor train_index, valid_index;  // of a named set: positions in its training file
  std::vector<int64_t> image;       // sizes of one example without the bias: 28 28; empty = no image
  bool bias = false;                // the last column is ones

  // The same as dense examples. Throws std::invalid_argument for sparse features.
  CleaningData data() const;
  LabelledExamples test_examples() const;
};
// As the closed forms of softmax regression read them.
LabelledRows labelled_rows(const ExampleSet& set);

struct NamedCleaningOptions {
  std::string set = "mnist";  // an image set of bytes in rows: mnist or fashion-mnist
  std::string folder = "data";
  // Class-balanced, disjoint, both drawn from the training file.
  int64_t train = 5000;
  int64_t valid = 5000;
  // K-RMD tests on all the rest, of the training file and the test file together; stocBiO on the test file.
  bool test_on_rest = true;
  double corruption = 0.5;  // probability that a training label is replaced
  uint64_t seed = 0;        // of the split and of the noise
  bool bias = true;         // K-RMD's W is 10 x 785
  at::ScalarType dtype = at::kFloat;
  void validate() const;
};
CleaningSets make_named_cleaning_sets(const NamedCleaningOptions& options);

struct CleaningFileOptions {
  LabelledFile train, valid, test;  // empty features = there is none
  FeatureFileOptions reading;
  // 0: the classes are the labels that occur in the training file, whatever their numbers; otherwise labels
  // must be 0 .. classes-1, each with an example.
  int64_t classes = 0;
  bool bias = true;
};
// Throws std::runtime_error naming the file, the example, what was expected and what was found: also for a
// validation set without an example of some class, because every training example of it would look bad.
CleaningSets read_cleaning_sets(const CleaningFileOptions& options);

}  // namespace bilevel
