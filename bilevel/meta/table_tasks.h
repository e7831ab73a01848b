#pragma once
// Few-shot tasks over the classes of a table: rows in place of images. The network sees columns of mean 0 and
// deviation 1 over the training classes, of the others nothing may be known.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/feature_files.h"
#include "bilevel/data/table_schema.h"
#include "bilevel/meta/image_tasks.h"
#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

// What rows of the same kind go through before the network sees them.
struct RowScale {
  TableSchema schema;                   // of the table's columns
  std::vector<double> mean, deviation;  // of the features, over the rows of the training classes

  Tensor scaled(const Tensor& rows) const;  // double
};

// Unlike an ExampleSet of more classes than one task has: tasks are drawn from them.
struct TableTaskSet {
  std::string name;                // in messages
  Tensor rows;                     // rows x columns, double
  Tensor labels;                   // int64, 0 .. classes-1
  std::vector<std::string> names;  // of the classes
  ClassParts parts;
  TableSchema schema;
};

Tensor dense_rows_of(const Features& features);  // double

// CSV, TSV or svmlight with labels inside, or these, NPY or IDX with a file of labels. Classes are parted 64
// to 16 to 20, as those of a folder are. Throws std::runtime_error naming the file.
TableTaskSet read_task_table(const std::string& path, const std::string& labels,
                             const std::string& label_column);

class TableTasks : public TaskSource {
 public:
  // Throws std::invalid_argument naming the part that has fewer classes than shape.ways, or the class that
  // has fewer rows than shots and queries take.
  TableTasks(TableTaskSet set, const TaskShape& shape, uint64_t seed, const at::TensorOptions& tensors);
  int64_t outputs() const override { return shape_.ways; }
  std::vector<int64_t> input_shape() const override { return {rows_.size(1)}; }
  int64_t classes(Part part) const override { return static_cast<int64_t>(parts_.of(part).size()); }
  TaskBatch tasks(Part part, int64_t first, int64_t count) const override;
  const RowScale& scale() const { return scale_; }

 private:
  RowScale scale_;
  Tensor rows_;                                // scaled, in the type and on the device of the tasks
  std::vector<std::vector<int64_t>> members_;  // rows of each class
  ClassParts parts_;
  TaskShape shape_;
  uint64_t seed_;
  at::Device device_;
};

}  // namespace bilevel::meta
