#pragma once
// Examples and images in memory, from what python/bilevel/_data.py has made of a user's arrays.

#include <torch/csrc/utils/pybind.h>

#include "bilevel/data/image_data.h"
#include "bilevel/jobs/example_sets.h"
#include "bilevel/problems/task_sets.h"

namespace bilevel::python {

namespace py = pybind11;

// {"train": (features, labels), "valid": ..., "test": ..., "class_names": [...], "feature_names": [...]};
// features are a tensor, or (rows, columns, row_start, column, value) of a sparse matrix.
ExampleSets example_sets_from(const py::dict& data);
// {"train": (features, labels, tasks), ..., "task_names": [...], "classes": n, "classes_are_tasks": bool}
TaskSets task_sets_from(const py::dict& data);
// {"train": (images, labels), "test": ..., "class_names": [...]}; images are uint8, N x C x H x W.
ImageData images_from(const py::dict& data);

}  // namespace bilevel::python
