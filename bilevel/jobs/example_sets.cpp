#include "bilevel/jobs/example_sets.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/data/labels.h"

namespace bilevel {
namespace {

// Bytes are divided by 255, as in files: beside numbers that are not, one feature would have two scales.
void require_same_scale(const ExampleSet& set, const char* name, const ExampleSet& train) {
  const auto are_bytes = [](const Features& f) {
    return !f.is_sparse() && f.dense.scalar_type() == at::kByte;
  };
  const bool bytes = are_bytes(set.features);
  if (bytes == are_bytes(train.features)) return;
  throw std::invalid_argument(fmt::format(
      "{}: its features are {}, those of train are {}: bytes are divided by 255 and other numbers "
      "are not; give both alike",
      name, bytes ? "bytes (uint8)" : "numbers", bytes ? "numbers" : "bytes (uint8)"));
}

Tensor means_of(const Features& features) {
  if (!features.is_sparse()) return features.dense.mean(0, /*keepdim=*/false, at::kDouble);
  const SparseMatrix& m = features.sparse;
  return at::zeros({m.columns}, at::kDouble).index_add_(0, m.column.to(at::kLong), m.value.to(at::kDouble)) /
         m.rows;
}

TableSchema schema_of_examples(const ExampleSets& data, bool has_names, bool are_bytes) {
  TableSchema schema;
  schema.file = "the training examples";
  if (!has_names || are_bytes) {
    schema.form = TableSchema::Form::array;
    schema.width_of_array = data.train.features.columns();
    schema.is_bytes = are_bytes;
    return schema;
  }
  schema.form = TableSchema::Form::table;
  schema.has_header = true;
  schema.width = data.train.features.columns();
  const Tensor means = means_of(data.train.features);
  for (int64_t j = 0; j < schema.width; ++j) {
    schema.columns.push_back(
        {.name = data.feature_names[static_cast<size_t>(j)], .place = j, .means = {means[j].item<double>()}});
  }
  return schema;
}

void complete_features(ExampleSet& set, const char* name, int64_t columns, at::ScalarType dtype) {
  Features& features = set.features;
  if (features.is_sparse()) {
    features.sparse.validate(name);
    features.sparse = to_dtype(features.sparse, dtype);
  } else {
    if (features.dense.dim() != 2) {
      throw std::invalid_argument(
          fmt::format("{}: the features must be a matrix of examples x features, found {} dimensions", name,
                      features.dense.dim()));
    }
    const bool are_bytes = features.dense.scalar_type() == at::kByte;
    features.dense = features.dense.detach().to(at::kCPU, dtype).contiguous();
    if (are_bytes) features.dense.div_(255);
  }
  if (columns >= 0 && features.columns() != columns) {
    throw std::invalid_argument(
        fmt::format("{}: {} features, and train has {}", name, features.columns(), columns));
  }
  if (features.rows() != set.size()) {
    throw std::invalid_argument(
        fmt::format("{}: {} examples with {} labels", name, features.rows(), set.size()));
  }
  if (!features.is_sparse() && !features.dense.isfinite().all().item<bool>()) {
    const Tensor rows = features.dense.isfinite().all(1).logical_not().nonzero();
    throw std::invalid_argument(
        fmt::format("{}: example {} has a number that is not finite", name, rows[0][0].item<int64_t>()));
  }
}

void complete_targets(ExampleSet& set, const char* name) {
  set.labels = set.labels.detach().to(at::kCPU, at::kDouble).flatten().contiguous();
  if (!set.labels.isfinite().all().item<bool>()) {
    throw std::invalid_argument(fmt::format("{}: a target is not finite", name));
  }
}

void complete_labels(ExampleSet& set, const char* name) {
  if (!c10::isIntegralType(set.labels.scalar_type(), /*includeBool=*/false)) {
    throw std::invalid_argument(fmt::format("{}: the labels must be whole numbers, found {}", name,
                                            c10::toString(set.labels.scalar_type())));
  }
  set.labels = set.labels.detach().to(at::kCPU, at::kLong).flatten().contiguous();
}

// Rows and labels of all sets, the labels by `complete`.
template <typename Complete>
void complete_sets(ExampleSets& data, at::ScalarType dtype, Complete complete) {
  if (data.train.size() == 0) throw std::invalid_argument("train: there are no examples");
  const bool has_names = !data.feature_names.empty();
  const bool are_bytes =
      !data.train.features.is_sparse() && data.train.features.dense.scalar_type() == at::kByte;
  for (const auto& [set, name] : {std::pair{&data.valid, "valid"}, std::pair{&data.test, "test"}}) {
    if (set->size() > 0) require_same_scale(*set, name, data.train);
  }
  int64_t columns = -1;
  for (const auto& [set, name] :
       {std::pair{&data.train, "train"}, std::pair{&data.valid, "valid"}, std::pair{&data.test, "test"}}) {
    if (set->size() == 0) continue;
    complete(*set, name);
    complete_features(*set, name, columns, dtype);
    columns = data.train.features.columns();
    if (set->features.is_sparse() != data.train.features.is_sparse()) {
      throw std::invalid_argument(
          fmt::format("{}: its features are {}, those of train are not: give both in the same form", name,
                      set->features.is_sparse() ? "sparse" : "dense"));
    }
  }
  if (data.feature_names.empty()) {
    for (int64_t j = 0; j < columns; ++j) data.feature_names.push_back(fmt::format("column {}", j));
  }
  if (static_cast<int64_t>(data.feature_names.size()) != columns) {
    throw std::invalid_argument(
        fmt::format("train: {} features with {} names", columns, data.feature_names.size()));
  }
  data.schema = schema_of_examples(data, has_names, are_bytes);
}

}  // namespace

ExampleSets completed(ExampleSets data, at::ScalarType dtype) {
  complete_sets(data, dtype, complete_labels);
  if (data.class_names.empty()) {
    const int64_t classes = data.train.labels.max().item<int64_t>() + 1;
    for (int64_t k = 0; k < classes; ++k) data.class_names.push_back(std::to_string(k));
  }
  const auto classes = static_cast<int64_t>(data.class_names.size());
  if (classes < 2) throw std::invalid_argument("train: at least two classes are needed");
  check_labels(data.train.labels, classes, true, "train");
  if (data.valid.size() > 0) check_labels(data.valid.labels, classes, false, "valid");
  if (data.test.size() > 0) check_labels(data.test.labels, classes, false, "test");
  return data;
}

ExampleSets completed_numbers(ExampleSets data, at::ScalarType dtype) {
  complete_sets(data, dtype, complete_targets);
  data.class_names.clear();
  return data;
}

}  // namespace bilevel
