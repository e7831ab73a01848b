// Tasks made of a table's rows: the right rows of the right classes, scaled by the training classes alone.
#include "bilevel/meta/table_tasks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/meta/task_data.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace bilevel::meta {
namespace {

using test::TemporaryFolder;

// Ten classes 7, 17, ... of six rows: the first column is the class, the second the row within it.
std::string write_table(const TemporaryFolder& folder) {
  std::string path = folder / "table.csv";
  std::ofstream file(path);
  file << "kind,number,row\n";
  for (int i = 0; i < 60; ++i) file << 7 + 10 * (i % 10) << ',' << 100 + i % 10 << ',' << i / 10 << '\n';
  return path;
}

TEST(TableTasks, TakeRowsOfDifferentClassesAndPartsShareNone) {
  const TemporaryFolder folder;
  const TableTaskSet set = read_task_table(write_table(folder), "", "kind");
  EXPECT_EQ(set.names.size(), 10U);
  EXPECT_EQ(set.names[1], "17");
  EXPECT_EQ(set.parts.train.size(), 6U);
  EXPECT_EQ(set.parts.valid.size(), 2U);
  EXPECT_EQ(set.parts.test.size(), 2U);
  const TableTasks source(set, {.ways = 2, .shots = 2, .queries = 3}, 0, test::doubles());
  EXPECT_EQ(source.input_shape(), std::vector<int64_t>{2});

  // Back to the table's numbers: mean and deviation of the six training classes' rows.
  std::vector<double> known;
  for (const int64_t k : set.parts.train) known.push_back(100.0 + static_cast<double>(k));
  const Tensor classes = at::tensor(known, test::doubles());
  const double mean = classes.mean().item<double>(), deviation = classes.std(false).item<double>();
  for (const Part part : {Part::train, Part::valid, Part::test}) {
    const std::set<int64_t> allowed(set.parts.of(part).begin(), set.parts.of(part).end());
    const TaskBatch batch = source.tasks(part, 0, 5);
    ASSERT_EQ(batch.train_inputs.sizes(), (std::vector<int64_t>{5, 4, 2}));
    ASSERT_EQ(batch.valid_inputs.sizes(), (std::vector<int64_t>{5, 6, 2}));
    for (int64_t task = 0; task < 5; ++task) {
      const Tensor inputs = at::cat({batch.train_inputs[task], batch.valid_inputs[task]});
      const Tensor targets = at::cat({batch.train_targets[task], batch.valid_targets[task]});
      const Tensor number = (inputs.select(1, 0) * deviation + mean - 100).round().to(at::kLong);
      std::set<std::pair<int64_t, int64_t>> rows;
      for (int64_t i = 0; i < 10; ++i) {
        EXPECT_TRUE(allowed.count(number[i].item<int64_t>())) << part_name(part);
        EXPECT_EQ(number[i].item<int64_t>() == number[0].item<int64_t>(),
                  targets[i].item<int64_t>() == targets[0].item<int64_t>());
        rows.emplace(number[i].item<int64_t>(), std::lround(inputs[i][1].item<double>() * 1000));
      }
      EXPECT_EQ(rows.size(), 10U) << "no row twice";
    }
    EXPECT_TRUE(source.tasks(part, 3, 1).train_inputs[0].equal(batch.train_inputs[3]));
  }
}

TEST(TableTasks, RefuseClassesWithTooFewRows) {
  const TemporaryFolder folder;
  const std::string path = write_table(folder);
  TaskDataOptions o;
  o.data = path;
  o.label_column = "kind";
  o.shape = {.ways = 2, .shots = 3, .queries = 4};
  o.tensors = test::doubles();
  try {
    (void)load_task_data(o);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("has 6 rows, and a task takes 7"), std::string::npos)
        << error.what();
  }
  o.shape.queries = 3;
  EXPECT_EQ(load_task_data(o).source->classes(Part::train), 6);
  o.data = "blobs";
  EXPECT_THROW((void)load_task_data(o), std::invalid_argument) << "a label column of no table";
}

}  // namespace
}  // namespace bilevel::meta
