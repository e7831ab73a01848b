#pragma once
// What every field table must hold, whatever it is of: options -> JSON -> options, and values that are
// refused by the field's name.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"

namespace bilevel::test {

// A value that is not the default, for every field there can be.
inline std::vector<std::string> another_value(const OptionsView& options, const Field& field) {
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

// `view` and `again` are two values of the same options, both as they begin.
inline void expect_round_trip(const std::string& job, OptionsView view, OptionsView again) {
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
  using Json = nlohmann::ordered_json;
  const Json stored = Json::parse(view.given_json().dump());
  give_rest(again, words_of(stored));
  EXPECT_EQ(again.given_json(), view.given_json()) << job;
  for (const Field& field : view.fields()) {
    if (field.kind == FieldKind::process) continue;
    EXPECT_EQ(again.words(field), view.words(field)) << job << ": " << field.name;
  }
}

// Text may be anything; every other field refuses what it is not, by its name, and so it does beyond its
// bounds.
inline void expect_refusals_by_name(const std::string& job, OptionsView view) {
  const auto expect_refused = [&](const Field& field, const std::string& value) {
    SCOPED_TRACE(job + ": " + field.name);
    try {
      view.give(field, {value});
      ADD_FAILURE() << value << " was taken";
    } catch (const OptionError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith(field.name + " = " + value + ": "));
      EXPECT_THAT(flag_text(error.marked()), ::testing::StartsWith(flag_of(field.name) + " " + value + ": "));
    }
    EXPECT_FALSE(view.is_given(field));
  };
  for (const Field& field : view.fields()) {
    const bool any_text = field.type == FieldType::text && field.choices.empty();
    if (!any_text) expect_refused(field, "no such value");
    const bool bounded = field.type == FieldType::whole || field.type == FieldType::number;
    if (bounded && field.choices.empty()) {
      for (const double bound : {field.range.least, field.range.most}) {
        const double beyond =
            bound == field.range.least ? bound - 1 - std::abs(bound) : bound + 1 + std::abs(bound);
        expect_refused(field, fmt::format("{:.0f}", beyond));
      }
    }
  }
}

}  // namespace bilevel::test
