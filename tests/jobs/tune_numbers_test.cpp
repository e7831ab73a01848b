// The job `tune` on targets that are numbers, and with regularisers of groups and of classes.

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/data/npy.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/tune.h"
#include "bilevel/jobs/tune_groups.h"
#include "bilevel/tables/table_scores.h"
#include "tests/jobs/example_files.h"

namespace bilevel::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// y = 2 a - b + 10 and noise, as a table without whole numbers.
std::string write_numbers(const TemporaryFolder& folder, const char* name, uint64_t seed) {
  std::string path = folder / name;
  Random random(seed);
  const at::TensorOptions doubles = at::TensorOptions().dtype(at::kDouble);
  const Tensor x = random.normal({60, 3}, doubles);
  const Tensor y = 2 * x.select(1, 0) - x.select(1, 1) + 10 + 0.5 * random.normal({60}, doubles);
  std::ofstream file(path);
  file.precision(17);
  file << "town_a,town_b,c,price\n";
  for (int64_t i = 0; i < 60; ++i) {
    for (int64_t j = 0; j < 3; ++j) file << x[i][j].item<double>() << ',';
    file << y[i].item<double>() << '\n';
  }
  return path;
}

TuneJobOptions numbers_options(const TemporaryFolder& folder) {
  TuneJobOptions o;
  o.compute.threads = 1;
  o.compute.dtype = "double";
  o.loss = "squared";
  o.files.reading.label_column = "price";
  o.files.train.features = write_numbers(folder, "train.csv", 1);
  o.files.test.features = write_numbers(folder, "test.csv", 2);
  return o;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(TuneNumbers, ATableOfNumbersIsRegressedInItsOwnUnits) {
  const TemporaryFolder folder;
  RunContext context({.keep = true, .out = folder / "run"}, {});
  const TuneJobResult r = run_tune(numbers_options(folder), context);
  ASSERT_EQ(r.model.sizes(), (std::vector<int64_t>{4, 1}));
  EXPECT_NEAR(r.model[0][0].item<double>(), 2, 0.3);
  EXPECT_NEAR(r.model[1][0].item<double>(), -1, 0.3);
  EXPECT_NEAR(r.model[3][0].item<double>(), 10, 0.3);
  EXPECT_NEAR(r.json.at("test_rmse").get<double>(), 0.5, 0.15);
  EXPECT_NEAR(r.json.at("test_loss").get<double>(), std::pow(r.json.at("test_rmse").get<double>(), 2), 1e-12);
  EXPECT_GT(r.json.at("test_r2").get<double>(), 0.9);
  EXPECT_FALSE(r.json.contains("test_accuracy"));
  EXPECT_EQ(r.json.at("loss"), "squared");
  EXPECT_TRUE(read_npy(folder / "run/model.npy").equal(r.model));
}

// The same examples in memory, and with the targets in a file of their own.
TEST(TuneNumbers, FilesAndTensorsGiveTheSameBits) {
  const TemporaryFolder folder;
  const TuneJobOptions o = numbers_options(folder);
  RunContext first, second, third;
  const TuneJobResult read = run_tune(o, first);
  const TableSets tables = [&] {
    RegularizerFileOptions files = o.files;
    files.reading.dtype = at::kDouble;
    files.reading.labels_are_numbers = true;
    return read_table_sets(files);
  }();
  ExampleSets sets;
  sets.train = ExampleSet(tables.train.features, tables.train.labels);
  sets.test = ExampleSet(tables.test.features, tables.test.labels);
  TuneJobOptions in_memory;
  in_memory.compute = o.compute;
  in_memory.loss = "squared";
  const TuneJobResult given = run_tune(in_memory, sets, second);
  EXPECT_TRUE(read.model.equal(given.model));
  EXPECT_EQ(read.scores, given.scores);

  write_examples(folder, "train", sets.train);
  write_examples(folder, "test", sets.test);
  TuneJobOptions arrays = in_memory;
  arrays.files.train = {folder / "train-x.npy", folder / "train-y.npy"};
  arrays.files.test = {folder / "test-x.npy", folder / "test-y.npy"};
  EXPECT_TRUE(run_tune(arrays, third).model.equal(read.model));
}

TEST(TuneNumbers, GroupsComeFromPrefixesOrAFile) {
  const FeatureGroups by_prefix = feature_groups("prefix", {"town_a", "age", "town_b", "kind=x", "kind=y"});
  EXPECT_THAT(by_prefix.names, ElementsAre("town", "age", "town", "kind", "kind"));
  EXPECT_TRUE(by_prefix.of_column.equal(at::tensor({0, 1, 0, 2, 2}, at::kLong)));
  EXPECT_THROW(feature_groups("prefix", {"a_1", "b_1"}), OptionError);

  const TemporaryFolder folder;
  std::ofstream(folder / "groups.txt") << "x\ny\nx\n";
  EXPECT_TRUE(feature_groups(folder / "groups.txt", {"a", "b", "c"})
                  .of_column.equal(at::tensor({0, 1, 0}, at::kLong)));
  try {
    (void)feature_groups(folder / "groups.txt", {"a", "b"});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected 2 names of groups, one per feature, found 3"));
  }
  TuneJobOptions o = numbers_options(folder);
  o.groups = "prefix";
  RunContext context({.keep = true, .out = folder / "run"}, {});
  const TuneJobResult r = run_tune(o, context);
  EXPECT_THAT(r.group_names, ElementsAre("town", "town", "c"));
  EXPECT_EQ(r.x[0].item<double>(), r.x[1].item<double>());
  EXPECT_EQ(text_of(folder / "run/regularisers.csv").find("feature,group,x,regulariser,weight_norm\n"), 0U);
}

TEST(TuneNumbers, AClassMayHaveRegularisersOfItsOwn) {
  const ExampleSets sets = example_sets();
  TuneJobOptions o;
  o.compute.threads = 1;
  o.compute.dtype = "double";
  o.per_class = true;
  RunContext context;
  const TuneJobResult r = run_tune(o, sets, context);
  ASSERT_TRUE(r.table->searched);
  EXPECT_TRUE(r.table->by_class);
  // In the order of the CSV and of the JSON.
  TuneJobResult freed = r;
  freed.x = at::arange(15, at::kDouble).view({5, 3});
  freed.model = -at::arange(18, at::kDouble).view({6, 3});
  freed.order = {14, 0};
  const std::vector<TunePenalty> penalties = ordered_penalties(freed);
  EXPECT_EQ(penalties[0].feature, "column 4");
  EXPECT_EQ(penalties[0].class_name, "2");
  EXPECT_EQ(penalties[0].x, 14);
  EXPECT_EQ(penalties[0].weight_norm, 14);
  EXPECT_EQ(penalties[1].class_name, "0");

  o.loss = "squared";
  try {
    (void)run_tune(o, sets, context);
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("with loss = squared: there are no classes"));
  }
}

}  // namespace
}  // namespace bilevel::test
