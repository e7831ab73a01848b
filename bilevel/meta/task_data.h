#pragma once
// One way to few-shot tasks, whatever they are made of.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/data/labelled_images.h"
#include "bilevel/meta/image_tasks.h"
#include "bilevel/meta/table_tasks.h"
#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

struct TaskDataOptions {
  // blobs, sinusoids, omniglot, fc100; else a folder of class folders, perhaps below train, val and test; or
  // a table (table_tasks.h).
  std::string data = "blobs";
  std::string labels = {};            // a file, of a table without them
  std::string label_column = "last";  // of a table as text: first, last, a name or a position
  std::string folder =
      "data";  // where omniglot and fc100 are looked for, or below a folder of their name there
  TaskShape shape;
  int64_t image_size = 0;  // height and width; 0: 28 for omniglot, 32 for fc100, as they are for a folder
  uint64_t seed = 0;       // of the tasks, of omniglot's parts, and of synthetic classes
  at::TensorOptions tensors = at::TensorOptions().dtype(at::kFloat);
  void validate() const;  // throws std::invalid_argument naming the option, its value and the bound
};

struct TaskData {
  std::unique_ptr<TaskSource> source;
  std::string name;                 // of the data, in messages
  std::string summary;              // one line: what was found
  std::optional<PixelScale> scale;  // of images, for others that are to be compared with them
  std::optional<RowScale> rows;     // of a table, likewise
  std::string digest;               // of images and of the parts' classes; empty: name and seed tell all
};

std::vector<std::string> task_data_names();  // those that are no folders or files
// Rows of numbers rather than images: points known by name, or a table.
bool are_points(const std::string& data);

// Throws std::invalid_argument for options that do not fit, std::runtime_error for files.
TaskData load_task_data(const TaskDataOptions& options);

// Images in memory, bytes with labels 0 .. class_names.size() - 1, as read_task_folder() has those of an
// unparted folder. Throws std::invalid_argument where they do not fit together.
ImageTaskSet task_set_of(const LabelledImages& images, const std::vector<std::string>& class_names);
// Tasks of it; of the options their shape, seed and tensors are read.
TaskData task_data_of(ImageTaskSet set, const TaskDataOptions& options);

}  // namespace bilevel::meta
