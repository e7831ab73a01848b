#include "bilevel/problems/regularizer_sets.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/labels.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/splits.h"

namespace bilevel {
namespace {

constexpr int64_t largest_names = int64_t{1} << 32;  // bytes of a file of names

FeatureMatrix to_matrix(const Features& features) {
  if (!features.is_sparse()) return FeatureMatrix::from_dense(features.dense);
  const SparseMatrix& m = features.sparse;
  return FeatureMatrix::from_csr(m.row_start, m.column, m.value, m.columns);
}

Features rows_of(const Features& features, const Tensor& index) {
  Features chosen;
  if (features.is_sparse()) {
    chosen.sparse = select_rows(features.sparse, index);
  } else {
    chosen.dense = features.dense.index_select(0, index);
  }
  return chosen;
}

int64_t nonzeros_of(const Features& features) {
  return features.is_sparse() ? features.sparse.nonzeros() : features.dense.count_nonzero().item<int64_t>();
}

// Training examples become training and validation examples; `what` names their file.
void split(const Features& features, const Tensor& labels, double valid_part, uint64_t seed,
           const std::string& what, RegularizerSets& sets) {
  const int64_t valid = std::llround(valid_part * static_cast<double>(labels.numel()));
  const Splits parts = make_splits(labels, sets.classes, {.train = labels.numel() - valid, .valid = valid},
                                   Balance::proportional, seed);
  const auto take = [&](const Tensor& index, const char* part) -> LabelledRows {
    const std::string name = fmt::format("{}, the {} part of it", what, part);
    if (index.numel() == 0) {
      throw std::runtime_error(
          fmt::format("{}: expected examples, found none of {}; give more, or another "
                      "part for validation",
                      name, labels.numel()));
    }
    const Tensor sorted = std::get<0>(index.sort());  // rows stay in the order that they lie in
    return {to_matrix(rows_of(features, sorted)), labels.index_select(0, sorted)};
  };
  sets.train = take(parts.train, "training");
  sets.valid = take(parts.valid, "validation");
  check_labels(sets.train.labels, sets.classes, true, what + ", the training part of it");
  distinct_labels(sets.valid.labels, what + ", the validation part of it");
}

std::vector<std::string> read_names(const std::string& path, int64_t expected) {
  std::vector<std::string> names;
  LineReader lines(path, largest_names);
  for (std::string_view line; lines.next(line);) {
    if (trimmed(line).empty()) {
      line_error(path, lines.number(), "the name of a feature", "an empty line", "write one name a line");
    }
    names.emplace_back(trimmed(line));
  }
  if (std::cmp_not_equal(names.size(), expected)) {
    line_error(path, 0, fmt::format("{} names, one per feature", expected), fmt::format("{}", names.size()),
               "name every column of the data in its order, one a line");
  }
  return names;
}

Tensor finite_targets(const LabelledFeatures& set) {
  const Tensor targets = set.labels.to(at::kDouble);
  const Tensor bad = targets.isfinite().logical_not().nonzero();
  if (bad.size(0) > 0) {
    line_error(set.labels_from, 0, "finite targets",
               fmt::format("{} such examples, example {} first", bad.size(0), bad[0][0].item<int64_t>()),
               "drop such examples first");
  }
  return targets;
}

}  // namespace

void RegularizerFileOptions::validate() const {
  require_between_0_and_1("valid_part", valid_part);
  if (train.features.empty()) throw std::invalid_argument("a file of training examples is missing");
  for (const auto& [file, set] : {std::pair{&valid, "validation"}, std::pair{&test, "test"}}) {
    if (file->features.empty() && !file->labels.empty()) {
      throw std::invalid_argument(
          fmt::format("{}: labels of a {} set without its features", file->labels, set));
    }
  }
}

TableSets read_table_sets(const RegularizerFileOptions& options) {
  options.validate();
  std::vector<LabelledFile> files{options.train};
  for (const LabelledFile* file : {&options.valid, &options.test}) {
    if (!file->features.empty()) files.push_back(*file);
  }
  std::vector<LabelledFeatures> read = read_labelled_files(files, options.reading);
  TableSets sets;
  sets.schema = read[0].schema;
  sets.nonzeros = nonzeros_of(read[0].features);
  const int64_t columns = read[0].features.columns();
  if (!options.feature_names.empty()) {
    sets.feature_names = read_names(options.feature_names, columns);
  } else if (!read[0].names.empty()) {
    sets.feature_names = read[0].names;
  } else {
    for (int64_t j = 0; j < columns; ++j) sets.feature_names.push_back(fmt::format("column {}", j));
  }
  if (options.bias) {
    for (LabelledFeatures& set : read) set.features = append_ones(set.features);
    sets.feature_names.emplace_back("(bias)");
  }

  if (options.reading.labels_are_numbers) {
    sets.classes = 1;
    const auto take = [](LabelledFeatures& set) -> ExampleSet {
      return {std::move(set.features), finite_targets(set)};
    };
    sets.train = take(read[0]);
    if (!options.valid.features.empty()) sets.valid = take(read[1]);
    if (!options.test.features.empty()) sets.test = take(read.back());
    return sets;
  }
  const std::vector<int64_t> values = distinct_labels(read[0].labels, read[0].labels_from);
  sets.classes = static_cast<int64_t>(values.size());
  const std::vector<std::string>& names = read[0].label_names;
  for (const int64_t value : values) {
    sets.class_names.push_back(names.empty() ? fmt::format("{}", value) : names[static_cast<size_t>(value)]);
  }
  const auto whole = [&](LabelledFeatures& set) -> ExampleSet {
    return {std::move(set.features), number_labels(set.labels, values, set.labels_from)};
  };
  if (!options.valid.features.empty()) distinct_labels(read[1].labels, read[1].labels_from);
  sets.train = whole(read[0]);
  if (!options.valid.features.empty()) sets.valid = whole(read[1]);
  if (!options.test.features.empty()) sets.test = whole(read.back());
  return sets;
}

RegularizerSets divided(TableSets tables, double valid_part, uint64_t seed, const std::string& what) {
  RegularizerSets sets;
  sets.nonzeros = tables.nonzeros;
  sets.classes = tables.classes;
  sets.class_names = std::move(tables.class_names);
  sets.feature_names = std::move(tables.feature_names);
  const auto whole = [](const ExampleSet& set) -> LabelledRows {
    return {to_matrix(set.features), set.labels};
  };
  if (tables.valid.size() == 0) {
    require_between_0_and_1("valid_part", valid_part);
    split(tables.train.features, tables.train.labels, valid_part, seed, what, sets);
  } else {
    sets.train = whole(tables.train);
    sets.valid = whole(tables.valid);
  }
  if (tables.test.size() > 0) sets.test = whole(tables.test);
  return sets;
}

RegularizerSets read_regularizer_sets(const RegularizerFileOptions& options) {
  return divided(read_table_sets(options), options.valid_part, options.seed, options.train.features);
}

RegularizerSets read_newsgroup_sets(const std::string& path, const NewsgroupsOptions& options,
                                    double valid_part, uint64_t seed) {
  require_between_0_and_1("valid_part", valid_part);
  Newsgroups posts = read_newsgroups(path, options);
  RegularizerSets sets;
  sets.classes = static_cast<int64_t>(posts.groups.size());
  sets.class_names = std::move(posts.groups);
  sets.feature_names = std::move(posts.features);
  sets.nonzeros = posts.train.nonzeros();
  Features train, test;
  train.sparse = std::move(posts.train);
  test.sparse = std::move(posts.test);
  split(train, posts.train_labels, valid_part, seed, path, sets);
  sets.test = LabelledRows{to_matrix(test), posts.test_labels};
  return sets;
}

}  // namespace bilevel
