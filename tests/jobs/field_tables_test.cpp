// Every job's field table: what it says is what the program offers, stores and documents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/fields/option_text.h"
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

namespace bilevel {
namespace {

using Json = nlohmann::ordered_json;

// A value that is not the default, for every field there can be.
std::vector<std::string> another_value(const OptionsView& options, const Field& field) {
  const std::vector<std::string> now = options.words(field);
  const std::string word = now.empty() ? "" : now.front();
  const auto other = [&](const std::vector<std::string>& candidates) -> std::vector<std::string> {
    for (const std::string& candidate : candidates) {
      if (candidate == word) continue;
      try {
        field.require({candidate});
        return {candidate};
      } catch (const std::invalid_argument&) {
        continue;
      }
    }
    throw std::logic_error(field.name + ": no other value was found; give the test one");
  };
  if (field.choices.size() == 1) return field.choices;
  if (!field.choices.empty()) return other(field.choices);
  switch (field.type) {
    case FieldType::flag:
      return {word == "true" ? "false" : "true"};
    case FieldType::whole:
      return other({"3", "4", "1", "0"});
    case FieldType::seed:
      return other({"18446744073709551615"});
    case FieldType::number:
      return other({"0.123456789012345678", "0.5", "2"});
    case FieldType::text:
      break;
  }
  return other({"cosine", "power:0.4", "other"});
}

template <typename Options>
void expect_round_trip(const std::string& job) {
  Options options;
  OptionsView view(options);
  std::set<std::string> names;
  for (const Field& field : view.fields()) {
    SCOPED_TRACE(job + ": " + field.name);
    EXPECT_TRUE(names.insert(field.name).second) << "twice in the table";
    EXPECT_FALSE(field.help.empty());
    EXPECT_FALSE(view.is_given(field));
    try {
      view.give(field, another_value(view, field));
    } catch (const OptionError& error) {
      // Words of a type of its own.
      const std::map<std::string, std::string> words = {
          {"sweep", "K=1..3"}, {"linear_rate", "auto"}, {"seeds", "0,3-5"}};
      const auto own = words.find(field.name);
      view.give(field, {own == words.end() ? "cosine" : own->second});
    }
    EXPECT_TRUE(view.is_given(field));
  }
  const Json stored = Json::parse(view.given_json().dump());
  Options again;
  give_rest(OptionsView(again), words_of(stored));
  EXPECT_EQ(OptionsView(again).given_json(), view.given_json()) << job;
  for (const Field& field : view.fields()) {
    if (field.kind == FieldKind::process) continue;
    EXPECT_EQ(OptionsView(again).words(field), view.words(field)) << job << ": " << field.name;
  }
}

template <typename Options>
void expect_refusals_by_name(const std::string& job) {
  Options options;
  OptionsView view(options);
  for (const Field& field : view.fields()) {
    if (field.type == FieldType::text && field.choices.empty()) continue;
    SCOPED_TRACE(job + ": " + field.name);
    try {
      view.give(field, {"no such value"});
      ADD_FAILURE() << "taken";
    } catch (const OptionError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith(field.name + " = no such value: "));
      EXPECT_THAT(flag_text(error.marked()), ::testing::StartsWith(flag_of(field.name) + " no such value: "));
    }
    EXPECT_FALSE(view.is_given(field));
  }
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

}  // namespace
}  // namespace bilevel
