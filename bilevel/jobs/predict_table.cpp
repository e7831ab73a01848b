// `predict` with the models of clean, tune and interact, on rows of a file.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bilevel/data/file_error.h"
#include "bilevel/data/npy.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/export_model.h"
#include "bilevel/jobs/predict_run.h"
#include "bilevel/problems/cleaning_model.h"

namespace bilevel {
namespace {

Tensor dense_features(const Features& features) {
  return (features.is_sparse() ? to_dense(features.sparse) : features.dense).to(at::kDouble);
}

Tensor with_intercept(const Tensor& features, bool has_intercept) {
  if (!has_intercept) return features;
  return at::cat({features, at::ones({features.size(0), 1}, features.options())}, 1);
}

[[noreturn]] void wrong_weights(const std::string& path, const std::string& expected, const Tensor& found) {
  file_error(path, expected, fmt::format("{} numbers in {} dimensions", found.numel(), found.dim()),
             "the files are from different runs: run the job again");
}

Tensor linear_predictions(const SavedModel& model, const Tensor& weights, const Tensor& rows,
                          const std::string& path) {
  const Tensor x = with_intercept(rows, model.has_intercept);
  const auto outputs = std::max<int64_t>(static_cast<int64_t>(model.class_names.size()), 1);
  if (weights.dim() != 2 || weights.size(0) != x.size(1) || weights.size(1) != outputs) {
    wrong_weights(path, fmt::format("{} x {} numbers", x.size(1), outputs), weights);
  }
  return x.mm(weights);
}

// Positions of the rows' tasks in the model's names.
std::vector<int64_t> tasks_of_rows(const SavedModel& model, const LabelledFeatures& read,
                                   const std::string& path) {
  if (!read.groups.defined()) {
    file_error(path, "a table with a column of tasks, as the training file had", "none",
               "predict takes the tasks from the table");
  }
  std::vector<int64_t> tasks;
  for (int64_t i = 0; i < read.groups.numel(); ++i) {
    const auto group = read.groups[i].item<int64_t>();
    const std::string name = model.schema.group_names.empty()
                                 ? fmt::format("{}", group)
                                 : model.schema.group_names.at(static_cast<size_t>(group));
    const auto found = std::find(model.task_names.begin(), model.task_names.end(), name);
    if (found == model.task_names.end()) {
      file_error(path, "tasks that the model knows", fmt::format("task {} in row {}", name, i),
                 "leave its rows out, or train with it");
    }
    tasks.push_back(found - model.task_names.begin());
  }
  return tasks;
}

Tensor task_predictions(const SavedModel& model, const Tensor& weights, const Tensor& rows,
                        const LabelledFeatures& read, const std::string& path, const std::string& data,
                        PredictJobResult& result) {
  const Tensor x = with_intercept(rows, model.has_intercept);
  if (model.classes_are_tasks) {
    if (weights.dim() != 2 || weights.size(1) != x.size(1)) {
      wrong_weights(path, fmt::format("rows of {} numbers", x.size(1)), weights);
    }
    return x.mm(weights.t());
  }
  const auto tasks = static_cast<int64_t>(model.task_names.size());
  const auto classes = static_cast<int64_t>(model.class_names.size());
  if (weights.dim() != 3 || weights.size(0) != tasks || weights.size(1) != classes ||
      weights.size(2) != x.size(1)) {
    wrong_weights(path, fmt::format("{} x {} x {} numbers", tasks, classes, x.size(1)), weights);
  }
  const std::vector<int64_t> of = tasks_of_rows(model, read, data);
  Tensor scores = at::empty({x.size(0), classes}, x.options());
  for (int64_t i = 0; i < x.size(0); ++i) {
    const int64_t task = of[static_cast<size_t>(i)];
    scores[i] = weights[task].mv(x[i]);
    result.tasks.push_back(model.task_names[static_cast<size_t>(task)]);
  }
  return scores;
}

Tensor cnn_predictions(const SavedModel& model, const Tensor& weights, const Tensor& rows) {
  const auto classes = static_cast<int64_t>(model.class_names.size());
  const Tensor blank = at::zeros({classes, rows.size(1)}, rows.options());
  const LabelledExamples none{blank, at::arange(classes, at::kLong)};
  const CnnCleaning cnn({none, none, classes, {}, {}}, model.schema.image, {}, rows.options());
  return cnn.scores(rows, weights.to(rows.options()));
}

// Of the rows whose true labels the file has, by the same names or numbers, and the model knows; -1 without
// any.
double accuracy_of(const SavedModel& model, const Tensor& labels, const Tensor& scores, int64_t& unknown) {
  const Tensor given = labels.to(at::kDouble), best = scores.argmax(1);
  int64_t known = 0, right = 0;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const auto value = static_cast<int64_t>(given[i].item<double>());
    const bool has_names = !model.schema.label_names.empty();
    const std::string name = !has_names  ? fmt::format("{}", value)
                             : value < 0 ? ""  // none of them
                                         : model.schema.label_names.at(static_cast<size_t>(value));
    const auto found = std::find(model.class_names.begin(), model.class_names.end(), name);
    if ((has_names && value < 0) || found == model.class_names.end()) {
      ++unknown;
      continue;
    }
    ++known;
    right += best[i].item<int64_t>() == found - model.class_names.begin() ? 1 : 0;
  }
  return known == 0 ? -1 : 100 * static_cast<double>(right) / static_cast<double>(known);
}

}  // namespace

void predict_table(const PredictJobOptions& o, const ModelInUse& used, PredictJobResult& result) {
  const SavedModel& model = used.saved;
  const std::string path = used.is_file ? o.run : o.run + "/model.npy";
  FeatureFileOptions reading = o.reading;
  reading.dtype = at::kDouble;
  reading.labels_are_numbers = model.class_names.empty();
  const LabelledFeatures read = read_new_examples(o.data, model.schema, reading);
  const Tensor weights = (used.is_file ? weights_of(used.file, model, path) : read_npy(path)).to(at::kDouble);
  const Tensor rows = dense_features(read.features);
  Tensor scores;
  switch (model.kind) {
    case SavedModel::Kind::tasks:
      scores = task_predictions(model, weights, rows, read, path, o.data, result);
      break;
    case SavedModel::Kind::cnn:
      scores = cnn_predictions(model, weights, rows);
      break;
    default:
      scores = linear_predictions(model, weights, rows, path);
  }
  result.rows.resize(static_cast<size_t>(rows.size(0)));
  for (size_t i = 0; i < result.rows.size(); ++i) {
    result.rows[i] = row_in_file(read.rows, static_cast<int64_t>(i));
  }
  result.probabilities = model.class_names.empty() ? scores : scores.softmax(1);
  if (!read.labels.defined()) return;
  result.accuracy = model.class_names.empty()
                        ? (scores.squeeze(1) - read.labels).square().mean().item<double>()
                        : accuracy_of(model, read.labels, scores, result.unknown_labels);
}

}  // namespace bilevel
