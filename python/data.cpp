#include "python/data.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bilevel::python {
namespace {

Features features_from(const py::handle& value) {
  Features features;
  if (!PyTuple_Check(value.ptr())) {
    features.dense = value.cast<Tensor>();
    return features;
  }
  const auto parts = py::reinterpret_borrow<py::tuple>(value);
  features.sparse = {.rows = parts[0].cast<int64_t>(),
                     .columns = parts[1].cast<int64_t>(),
                     .row_start = parts[2].cast<Tensor>(),
                     .column = parts[3].cast<Tensor>(),
                     .value = parts[4].cast<Tensor>()};
  return features;
}

std::vector<std::string> names_from(const py::dict& data, const char* key) {
  return data.contains(key) ? data[key].cast<std::vector<std::string>>() : std::vector<std::string>{};
}

ExampleSet example_set_from(const py::dict& data, const char* key) {
  if (!data.contains(key)) return {};
  const py::tuple both = data[key];
  return {features_from(both[0]), both[1].cast<Tensor>()};
}

TaskExamples task_examples_from(const py::dict& data, const char* key) {
  if (!data.contains(key)) return {};
  const py::tuple all = data[key];
  return {.features = all[0].cast<Tensor>(),
          .labels = all[1].cast<Tensor>(),
          .tasks = all[2].is_none() ? Tensor() : all[2].cast<Tensor>()};
}

}  // namespace

ExampleSets example_sets_from(const py::dict& data) {
  return {.train = example_set_from(data, "train"),
          .valid = example_set_from(data, "valid"),
          .test = example_set_from(data, "test"),
          .class_names = names_from(data, "class_names"),
          .feature_names = names_from(data, "feature_names")};
}

TaskSets task_sets_from(const py::dict& data) {
  TaskSets sets;
  sets.train = task_examples_from(data, "train");
  sets.valid = task_examples_from(data, "valid");
  sets.test = task_examples_from(data, "test");
  sets.task_names = names_from(data, "task_names");
  sets.tasks = static_cast<int64_t>(sets.task_names.size());
  sets.classes = data["classes"].cast<int64_t>();
  sets.classes_are_tasks = data["classes_are_tasks"].cast<bool>();
  return sets;
}

ImageData images_from(const py::dict& data) {
  ImageData images;
  const py::tuple train = data["train"];
  images.train = {train[0].cast<Tensor>(), train[1].cast<Tensor>()};
  if (data.contains("test")) {
    const py::tuple test = data["test"];
    images.test = {test[0].cast<Tensor>(), test[1].cast<Tensor>()};
  }
  images.class_names = names_from(data, "class_names");
  images.classes = static_cast<int64_t>(images.class_names.size());
  return images;
}

}  // namespace bilevel::python
