#include "bilevel/meta/table_tasks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/data/feature_files.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/labels.h"

namespace bilevel::meta {
namespace {

Tensor numbers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

std::vector<double> list_of(const Tensor& values) {
  const Tensor row = values.contiguous();
  return {row.data_ptr<double>(), row.data_ptr<double>() + row.numel()};
}

}  // namespace

Tensor dense_rows_of(const Features& features) {
  return (features.is_sparse() ? to_dense(features.sparse) : features.dense).to(at::kDouble);
}

Tensor RowScale::scaled(const Tensor& rows) const {
  return (rows - at::tensor(mean, at::kDouble)) / at::tensor(deviation, at::kDouble);
}

TableTaskSet read_task_table(const std::string& path, const std::string& labels,
                             const std::string& label_column) {
  FeatureFileOptions options{.label_column = label_column, .dtype = at::kDouble};
  const LabelledFeatures read = read_labelled_files({{path, labels}}, options)[0];
  const std::vector<int64_t> values = distinct_labels(read.labels, read.labels_from);
  TableTaskSet set;
  set.name = path;
  set.rows = dense_rows_of(read.features);
  set.schema = read.schema;
  set.labels = number_labels(read.labels, values, read.labels_from);
  for (const int64_t value : values) {
    set.names.push_back(read.label_names.empty() ? fmt::format("{}", value)
                                                 : read.label_names[static_cast<size_t>(value)]);
  }
  set.parts = split_classes(static_cast<int64_t>(values.size()), 64, 16, 20, /*seed=*/0);
  if (set.parts.train.empty()) {
    file_error(path, "classes for three parts", fmt::format("{}", values.size()), "bring more classes");
  }
  return set;
}

TableTasks::TableTasks(TableTaskSet set, const TaskShape& shape, uint64_t seed,
                       const at::TensorOptions& tensors)
    : members_(set.names.size()),
      parts_(std::move(set.parts)),
      shape_(shape),
      seed_(named_seed(seed, "rows")),
      device_(tensors.device()) {
  shape_.validate();
  const Tensor labels = set.labels.contiguous();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    members_.at(static_cast<size_t>(labels.data_ptr<int64_t>()[i])).push_back(i);
  }
  const int64_t needed = shape_.shots + shape_.queries;
  std::vector<int64_t> training;
  for (const Part part : {Part::train, Part::valid, Part::test}) {
    require_classes(set.name.c_str(), part, classes(part), shape_.ways, "bring more classes");
    for (const int64_t k : parts_.of(part)) {
      const std::vector<int64_t>& rows = members_[static_cast<size_t>(k)];
      if (static_cast<int64_t>(rows.size()) < needed) {
        throw std::invalid_argument(fmt::format(
            "shots = {} and queries = {}: class {} of {} has {} rows, and a task takes {} different "
            "ones; ask for fewer, or bring more rows of the class",
            shape_.shots, shape_.queries, set.names[static_cast<size_t>(k)], set.name, rows.size(), needed));
      }
      if (part == Part::train) training.insert(training.end(), rows.begin(), rows.end());
    }
  }
  const Tensor known = set.rows.index_select(0, numbers(training));
  const Tensor mean = known.mean(0), deviation = known.std(0, /*unbiased=*/false);
  const Tensor divisor = at::where(deviation.gt(0), deviation, at::ones_like(deviation));
  scale_ = {.schema = std::move(set.schema), .mean = list_of(mean), .deviation = list_of(divisor)};
  rows_ = scale_.scaled(set.rows).to(tensors);
}

TaskBatch TableTasks::tasks(Part part, int64_t first, int64_t count) const {
  require_task_numbers(first, count);
  const std::vector<int64_t>& of_part = parts_.of(part);
  std::vector<int64_t> train, valid;
  for (int64_t number = first; number < first + count; ++number) {
    Random random = task_stream(seed_, part, number);
    for (const int64_t place :
         draw_without_replacement(random, static_cast<int64_t>(of_part.size()), shape_.ways)) {
      const std::vector<int64_t>& rows = members_[static_cast<size_t>(of_part[static_cast<size_t>(place)])];
      const std::vector<int64_t> chosen =
          draw_without_replacement(random, static_cast<int64_t>(rows.size()), shape_.shots + shape_.queries);
      for (size_t i = 0; i < chosen.size(); ++i) {
        (i < static_cast<size_t>(shape_.shots) ? train : valid)
            .push_back(rows[static_cast<size_t>(chosen[i])]);
      }
    }
  }
  const auto take = [&](const std::vector<int64_t>& chosen, int64_t each) {
    return rows_.index_select(0, numbers(chosen).to(device_))
        .view({count, shape_.ways * each, rows_.size(1)});
  };
  return {take(train, shape_.shots), class_targets(count, shape_.ways, shape_.shots, device_),
          take(valid, shape_.queries), class_targets(count, shape_.ways, shape_.queries, device_)};
}

}  // namespace bilevel::meta
