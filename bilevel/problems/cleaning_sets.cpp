#include "bilevel/problems/cleaning_sets.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/data/image_sets.h"
#include "bilevel/data/labels.h"
#include "bilevel/data/splits.h"
#include "bilevel/problems/label_noise.h"

namespace bilevel {
namespace {

LabelledExamples dense_examples(const ExampleSet& set) {
  if (set.features.is_sparse()) {
    throw std::invalid_argument("the features are sparse: this model needs dense ones");
  }
  return {set.features.dense, set.labels};
}

// Bytes as numbers in [0, 1], with a column of ones if asked for, in memory that is taken once: the rest of a
// set is large.
Features scaled(const Tensor& bytes, bool bias, at::ScalarType dtype) {
  Features features;
  features.dense = at::empty({bytes.size(0), bytes.size(1) + (bias ? 1 : 0)}, dtype);
  features.dense.narrow(1, 0, bytes.size(1)).copy_(bytes).div_(255);
  if (bias) features.dense.select(1, bytes.size(1)).fill_(1);
  return features;
}

// How many classes, and what they stand for.
std::vector<int64_t> class_labels(const LabelledFeatures& train, int64_t classes) {
  if (classes == 0) {
    std::vector<int64_t> values = distinct_labels(train.labels, train.labels_from);
    if (2 * static_cast<int64_t>(values.size()) > train.labels.numel()) {
      throw std::runtime_error(
          fmt::format("{}: expected classes with several examples, found {} different labels in {} examples; "
                      "is the label column a different one?",
                      train.labels_from, values.size(), train.labels.numel()));
    }
    return values;
  }
  if (classes < 2 || classes > train.labels.numel()) {
    throw std::invalid_argument(
        fmt::format("classes = {}: must be 2 to {}, since each needs one of the {} training examples",
                    classes, train.labels.numel(), train.labels.numel()));
  }
  std::vector<int64_t> values;
  for (int64_t k = 0; k < classes; ++k) values.push_back(k);
  return values;
}

void require_every_class(const ExampleSet& set, const std::vector<int64_t>& values, const std::string& file,
                         const std::vector<std::string>& names, std::string_view why) {
  const Tensor counts = at::bincount(set.labels, {}, static_cast<int64_t>(values.size()));
  const Tensor empty = counts.eq(0).nonzero();
  if (empty.size(0) == 0) return;
  throw std::runtime_error(
      fmt::format("{}: expected an example of each of {} classes, found none of label {}; {}", file,
                  values.size(), names[static_cast<size_t>(empty[0][0].item<int64_t>())], why));
}

}  // namespace

CleaningData CleaningSets::data() const {
  return {dense_examples(train), dense_examples(valid), classes, replaced, wrong};
}

LabelledExamples CleaningSets::test_examples() const { return dense_examples(test); }

LabelledRows labelled_rows(const ExampleSet& set) {
  const SparseMatrix& s = set.features.sparse;
  return {set.features.is_sparse() ? FeatureMatrix::from_csr(s.row_start, s.column, s.value, s.columns)
                                   : FeatureMatrix::from_dense(set.features.dense),
          set.labels};
}

void NamedCleaningOptions::validate() const {
  if (set != "mnist" && set != "fashion-mnist") {
    throw std::invalid_argument(fmt::format("data = {}: must be mnist or fashion-mnist", set));
  }
  for (const auto& [option, value] : {std::pair{"train_size", train}, std::pair{"valid_size", valid}}) {
    if (value < 10 || value > 60000) {
      throw std::invalid_argument(
          fmt::format("{} = {}: must be 10 to 60000, at least one example of each class", option, value));
    }
  }
  if (!(corruption >= 0 && corruption <= 1)) {
    throw std::invalid_argument(fmt::format("corruption = {}: must be a probability, 0 to 1", corruption));
  }
}

CleaningSets make_named_cleaning_sets(const NamedCleaningOptions& options) {
  options.validate();
  const ImageClasses all = load_image_classes(options.set, options.folder);
  CleaningSets sets;
  sets.class_names = all.classes;
  sets.classes = static_cast<int64_t>(all.classes.size());
  for (int64_t k = 0; k < sets.classes; ++k) sets.label_values.push_back(k);
  sets.bias = options.bias;
  sets.image = {28, 28};
  sets.schema = {.form = TableSchema::Form::array, .file = options.set};
  sets.schema.width_of_array = all.train.images.size(1);
  sets.schema.is_bytes = true;
  sets.schema.image = sets.image;
  const Splits splits = make_splits(all.train.labels, sets.classes, {options.train, options.valid, 0},
                                    Balance::equal, options.seed);
  sets.train_index = splits.train;
  sets.valid_index = splits.valid;
  const auto take = [&](const Tensor& index) {
    return ExampleSet{scaled(all.train.images.index_select(0, index), options.bias, options.dtype),
                      all.train.labels.index_select(0, index)};
  };
  sets.train = take(splits.train);
  sets.valid = take(splits.valid);
  Tensor test_images = all.test.images;
  sets.test.labels = all.test.labels;
  if (options.test_on_rest) {
    Tensor unused = at::ones({all.train.labels.numel()}, at::TensorOptions().dtype(at::kBool));
    unused.index_fill_(0, splits.train, 0).index_fill_(0, splits.valid, 0);
    const Tensor rest = unused.nonzero().squeeze(1);
    test_images = at::cat({all.train.images.index_select(0, rest), test_images});
    sets.test.labels = at::cat({all.train.labels.index_select(0, rest), sets.test.labels});
  }
  sets.test.features = scaled(test_images, options.bias, options.dtype);

  sets.clean = sets.train.labels;
  Random random(named_seed(options.seed, "label-noise"));
  NoisyLabels noisy = replace_labels(sets.clean, sets.classes, options.corruption, random);
  sets.train.labels = std::move(noisy.labels);
  sets.replaced = std::move(noisy.replaced);
  sets.wrong = std::move(noisy.wrong);
  return sets;
}

CleaningSets read_cleaning_sets(const CleaningFileOptions& options) {
  std::vector<LabelledFile> files{options.train};
  const bool has_valid = !options.valid.features.empty();
  if (has_valid) files.push_back(options.valid);
  if (!options.test.features.empty()) files.push_back(options.test);
  std::vector<LabelledFeatures> read = read_labelled_files(files, options.reading);
  const std::vector<int64_t> values = class_labels(read[0], options.classes);

  CleaningSets sets;
  sets.classes = static_cast<int64_t>(values.size());
  sets.label_values = values;
  sets.has_names = !read[0].label_names.empty();
  if (sets.has_names && options.classes > 0) {
    throw std::invalid_argument(fmt::format("classes = {}: the labels of {} are names; leave it out",
                                            options.classes, read[0].labels_from));
  }
  for (const int64_t value : values) {
    sets.class_names.push_back(sets.has_names ? read[0].label_names[static_cast<size_t>(value)]
                                              : std::to_string(value));
  }
  sets.train_rows = read[0].rows;
  sets.schema = read[0].schema;
  sets.bias = options.bias;
  sets.image = read[0].image;
  const auto take = [&](LabelledFeatures& from) {
    ExampleSet set;
    set.labels = number_labels(from.labels, values, from.labels_from);
    set.features = options.bias ? append_ones(from.features) : std::move(from.features);
    from.features = {};  // the features of a set are held once
    return set;
  };
  sets.train = take(read[0]);
  require_every_class(sets.train, values, read[0].labels_from, sets.class_names,
                      "add some, or renumber the classes");
  if (has_valid) {
    distinct_labels(read[1].labels,
                    read[1].labels_from);  // a validation set of one class tells nothing apart
    sets.valid = take(read[1]);
    require_every_class(sets.valid, values, read[1].labels_from, sets.class_names,
                        "every training example of it would look suspect: add some to the validation set, or "
                        "leave the class out of the training set");
  }
  if (!options.test.features.empty()) sets.test = take(read.back());
  return sets;
}

}  // namespace bilevel
