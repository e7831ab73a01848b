// Every job's field table, as a C++ user has it. The tables of all commands: tests/cli/field_walk_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/adapt.h"
#include "bilevel/jobs/check.h"
#include "bilevel/jobs/clean.h"
#include "bilevel/jobs/compare.h"
#include "bilevel/jobs/count.h"
#include "bilevel/jobs/diagnose.h"
#include "bilevel/jobs/export.h"
#include "bilevel/jobs/interact.h"
#include "bilevel/jobs/learn.h"
#include "bilevel/jobs/predict.h"
#include "bilevel/jobs/query.h"
#include "bilevel/jobs/search.h"
#include "bilevel/jobs/solve.h"
#include "bilevel/jobs/train.h"
#include "bilevel/jobs/tune.h"
#include "tests/fields/walk.h"

namespace bilevel {
namespace {

template <typename Options>
void expect_round_trip(const std::string& job) {
  Options options, again;
  test::expect_round_trip(job, OptionsView(options), OptionsView(again));
}

template <typename Options>
void expect_refusals_by_name(const std::string& job) {
  Options options;
  test::expect_refusals_by_name(job, OptionsView(options));
}

TEST(FieldTables, OptionsToJsonToOptions) {
  expect_round_trip<SolveJobOptions>("solve");
  expect_round_trip<CleanJobOptions>("clean");
  expect_round_trip<TuneJobOptions>("tune");
  expect_round_trip<InteractJobOptions>("interact");
  expect_round_trip<CheckJobOptions>("check");
  expect_round_trip<CompareJobOptions>("compare");
  expect_round_trip<DiagnoseJobOptions>("diagnose");
  expect_round_trip<SearchJobOptions>("search");
  expect_round_trip<TrainJobOptions>("train");
  expect_round_trip<LearnJobOptions>("learn");
  expect_round_trip<AdaptJobOptions>("adapt");
  expect_round_trip<ExportJobOptions>("export");
  expect_round_trip<PredictJobOptions>("predict");
  expect_round_trip<CountJobOptions>("count");
  expect_round_trip<QueryJobOptions>("query");
}

TEST(FieldTables, UnknownAndOutOfBoundValuesAreRefusedByName) {
  expect_refusals_by_name<SolveJobOptions>("solve");
  expect_refusals_by_name<CleanJobOptions>("clean");
  expect_refusals_by_name<TuneJobOptions>("tune");
  expect_refusals_by_name<InteractJobOptions>("interact");
  expect_refusals_by_name<CheckJobOptions>("check");
  expect_refusals_by_name<CompareJobOptions>("compare");
  expect_refusals_by_name<DiagnoseJobOptions>("diagnose");
  expect_refusals_by_name<SearchJobOptions>("search");
  expect_refusals_by_name<TrainJobOptions>("train");
  expect_refusals_by_name<LearnJobOptions>("learn");
  expect_refusals_by_name<AdaptJobOptions>("adapt");
  expect_refusals_by_name<ExportJobOptions>("export");
  expect_refusals_by_name<PredictJobOptions>("predict");
  expect_refusals_by_name<CountJobOptions>("count");
  expect_refusals_by_name<QueryJobOptions>("query");
}

// A job refuses its own files beside a named set by these, whatever their headings are called.
TEST(FieldTables, SayWhichExamplesAFieldIsAbout) {
  const auto expect = [](const auto& rows, const std::vector<std::string>& own,
                         const std::vector<std::string>& named) {
    for (const std::string& name : own)
      EXPECT_EQ(find_field(rows, name).source, DataSource::own_files) << name;
    for (const std::string& name : named)
      EXPECT_EQ(find_field(rows, name).source, DataSource::named_set) << name;
    for (const Field& field : rows) {
      const bool expected = std::count(own.begin(), own.end(), field.name) > 0 ||
                            std::count(named.begin(), named.end(), field.name) > 0;
      EXPECT_EQ(field.source != DataSource::any, expected) << field.name;
    }
  };
  expect(CleanJobOptions::fields().rows(),
         {"train", "train_labels", "valid", "valid_labels", "test", "test_labels", "label_column", "drop",
          "keep", "missing", "separator", "decimal", "header", "classes"},
         {"data", "data_dir", "corruption", "train_size", "valid_size"});
  expect(TuneJobOptions::fields().rows(),
         {"train", "train_labels", "valid", "valid_labels", "test", "test_labels", "label_column", "drop",
          "keep", "missing", "separator", "decimal", "header", "features", "valid_part", "bias"},
         {"data", "data_dir", "weights"});
  expect(InteractJobOptions::fields().rows(),
         {"train", "train_labels", "train_tasks", "valid", "valid_labels", "valid_tasks", "test",
          "test_labels", "test_tasks", "label_column", "task_column", "drop", "keep", "missing", "separator",
          "decimal", "header", "valid_part", "bias"},
         {"data", "tasks", "clusters", "features", "train_examples", "valid_examples", "test_examples",
          "spread", "noise"});
  expect(SolveJobOptions::fields().rows(),
         {"train_features", "train_labels", "valid_features", "valid_labels", "regularization", "bias"},
         {"data", "data_dir", "corruption", "train_size", "valid_size"});
}

}  // namespace
}  // namespace bilevel
