// A field table: names and words in, an options value out, and the other way round.
#include "bilevel/fields/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"

namespace bilevel {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::ordered_json;

struct Part {
  double rate = 0.1;
  int64_t steps = 10;
  static const Fields<Part>& fields() {
    static const Fields<Part> table = [] {
      Fields<Part> f;
      f.add(
           "inner_rate", [](auto& o) -> auto& { return o.rate; }, "rate")
          .in(above(0));
      f.add(
           "inner_steps", [](auto& o) -> auto& { return o.steps; }, "T")
          .in(at_least(0, 1000));
      return f;
    }();
    return table;
  }
};

struct Options {
  std::string file = {};
  std::string kind = "a";
  Part part = {};
  bool quick = false;
  uint64_t seed = 0;
  std::optional<double> tolerance = {};
  std::vector<int64_t> sizes = {1, 2};
  int verbosity = 0;
  Given given = {};
  static const Fields<Options>& fields() {
    static const Fields<Options> table = [] {
      Fields<Options> f;
      f.add(
           "file", [](auto& o) -> auto& { return o.file; }, "where the data is")
          .is(FieldKind::place);
      f.add(
           "kind", [](auto& o) -> auto& { return o.kind; }, "a or b")
          .one_of({"a", "b"});
      f.include(
          [](Options & o) -> auto& { return o.part; }, Part::fields());
      f.add(
          "quick", [](auto& o) -> auto& { return o.quick; }, "");
      f.add(
          "seed", [](auto& o) -> auto& { return o.seed; }, "");
      f.add(
          "tolerance", [](auto& o) -> auto& { return o.tolerance; }, "");
      f.add(
           "sizes", [](auto& o) -> auto& { return o.sizes; }, "")
          .in(at_least(1));
      f.add(
           "verbosity", [](auto& o) -> auto& { return o.verbosity; }, "")
          .is(FieldKind::process);
      return f;
    }();
    return table;
  }
};

std::string refusal(const std::string& name, const std::vector<std::string>& words) {
  Options options;
  OptionsView view(options);
  try {
    view.give(view.at(name), words);
  } catch (const OptionError& error) {
    EXPECT_FALSE(view.is_given(view.at(name)));
    return std::string(error.what()) + " | " + flag_text(error.marked());
  }
  return "";
}

TEST(Fields, GivenIsAPropertyOfTheValueAndIsCopiedWithIt) {
  Options options;
  OptionsView view(options);
  view.give(view.at("inner_rate"), {"0.25"});
  EXPECT_EQ(options.part.rate, 0.25);
  const Options copy = options;
  EXPECT_TRUE(copy.given(copy.part.rate));
  EXPECT_FALSE(copy.given(copy.part.steps));
  options.given.forget(options.part.rate);
  EXPECT_FALSE(options.given(options.part.rate));
  EXPECT_TRUE(copy.given(copy.part.rate));
}

TEST(Fields, OptionsToJsonToOptionsAreTheSame) {
  Options options;
  OptionsView view(options);
  view.give(view.at("file"), {"a b.csv"});
  view.give(view.at("inner_rate"), {"0.1234567890123456789"});
  view.give(view.at("quick"), {"true"});
  view.give(view.at("seed"), {"18446744073709551615"});
  view.give(view.at("tolerance"), {"1e-300"});
  view.give(view.at("sizes"), {"3", "4", "5"});
  view.give(view.at("verbosity"), {"2"});
  const Json json = view.given_json();
  EXPECT_EQ(json.dump(),
            R"({"file":"a b.csv","inner_rate":0.12345678901234568,"quick":true,"seed":18446744073709551615,)"
            R"("tolerance":1e-300,"sizes":[3,4,5]})");

  Options again;
  give_rest(OptionsView(again), words_of(Json::parse(json.dump())));
  EXPECT_EQ(OptionsView(again).given_json(), json);
  EXPECT_EQ(again.part.rate, options.part.rate);
  EXPECT_EQ(again.tolerance, options.tolerance);
  EXPECT_EQ(again.verbosity, 0);  // of the process: not stored
}

TEST(Fields, WhatWasStoredWithDashesIsRead) {
  Options options;
  give_rest(
      OptionsView(options),
      words_of(Json::parse(R"({"--inner-rate": ["0.5"], "--quick": ["true"], "--sizes": ["7", "8"]})")));
  EXPECT_EQ(options.part.rate, 0.5);
  EXPECT_TRUE(options.quick);
  EXPECT_THAT(options.sizes, ElementsAre(7, 8));
}

TEST(Fields, AValueThatIsTypedComesBeforeAStoredOne) {
  Options options;
  OptionsView view(options);
  view.give(view.at("inner_steps"), {"3"});
  give_rest(view, {{"inner_steps", {"9"}}, {"kind", {"b"}}});
  EXPECT_EQ(options.part.steps, 3);
  EXPECT_EQ(options.kind, "b");
  EXPECT_THROW(give_rest(view, {{"unknown", {"9"}}}), OptionError);
}

TEST(Fields, ARefusalNamesTheFieldItsValueAndTheBound) {
  EXPECT_EQ(refusal("inner_rate", {"0"}),
            "inner_rate = 0: must be above 0 | --inner-rate 0: must be above 0");
  EXPECT_EQ(refusal("inner_rate", {"nan"}),
            "inner_rate = nan: must be a finite number, above 0 | --inner-rate nan: must be a finite number, "
            "above 0");
  EXPECT_EQ(
      refusal("inner_steps", {"1001"}),
      "inner_steps = 1001: must be at least 0 and at most 1000 | --inner-steps 1001: must be at least 0 "
      "and at most 1000");
  EXPECT_EQ(refusal("seed", {"-1"}),
            "seed = -1: must be a whole number, 0 to 18446744073709551615 | --seed -1: must be a whole "
            "number, 0 to 18446744073709551615");
  EXPECT_EQ(refusal("kind", {"c"}), "kind = c: choose from a, b | --kind c: choose from a, b");
  EXPECT_EQ(refusal("sizes", {"1", "0"}),
            "sizes = 1,0: must be at least 1 | --sizes 1,0: must be at least 1");
  EXPECT_EQ(refusal("quick", {"maybe"}),
            "quick = maybe: must be true or false | --quick maybe: must be true or false");
  EXPECT_EQ(refusal("sizes", {"1", "2"}), "");
}

TEST(Fields, ARunGoesOnAsItBegan) {
  Options options;
  OptionsView view(options);
  view.give(view.at("inner_rate"), {"0.50"});
  view.give(view.at("inner_steps"), {"7"});
  view.give(view.at("file"), {"elsewhere"});  // a place may change
  view.give(view.at("kind"), {"b"});
  const NamedWords stored = {{"inner_rate", {"0.5"}}, {"inner_steps", {"8"}}};
  const NamedWords effective = {{"kind", {"b"}}};
  EXPECT_THAT(changed_fields(view, stored, effective), ElementsAre("inner_steps"));
  EXPECT_FALSE(options.given(options.kind));  // the run found it by itself, and does so again
  EXPECT_TRUE(options.given(options.part.rate));
}

TEST(Fields, WhatCodeHasChangedCountsAsGiven) {
  Options options, defaults;
  options.part.rate = 0.3;
  OptionsView(options).mark_changed(OptionsView(defaults));
  EXPECT_TRUE(options.given(options.part.rate));
  EXPECT_FALSE(options.given(options.part.steps));
}

struct Sourced {
  std::string file = {}, set = {};
  int64_t seed = 0;
  Given given = {};
  static const Fields<Sourced>& fields() {
    static const Fields<Sourced> table = [] {
      Fields<Sourced> f;
      f.heading("examples", DataSource::own_files);
      f.add(
          "file", [](auto& o) -> auto& { return o.file; }, "");
      f.heading("examples", DataSource::named_set);
      f.add(
          "set", [](auto& o) -> auto& { return o.set; }, "");
      f.heading("examples");
      f.add(
          "seed", [](auto& o) -> auto& { return o.seed; }, "");
      return f;
    }();
    return table;
  }
};

// Which examples a field is about does not depend on what its heading says.
TEST(Fields, KnowWhichExamplesTheyAreAbout) {
  Sourced options;
  options.given.set(options.set, std::string("mnist"));
  options.given.set(options.seed, int64_t{3});
  EXPECT_THAT(OptionsView(options).given_about(DataSource::own_files), ElementsAre());
  EXPECT_THAT(OptionsView(options).given_about(DataSource::named_set), ElementsAre("set"));
  options.given.set(options.file, std::string("train.csv"));
  EXPECT_THAT(OptionsView(options).given_about(DataSource::own_files), ElementsAre("file"));
}

TEST(OptionText, TheReaderDecidesHowOptionsAreCalled) {
  const std::string text = named("inner_rate", "5") + " is too large: see " + named("inner_optimizer");
  EXPECT_EQ(plain_text(text), "inner_rate = 5 is too large: see inner_optimizer");
  EXPECT_EQ(flag_text(text), "--inner-rate 5 is too large: see --inner-optimizer");
  // A value with the marks in it cannot break out.
  const std::string hostile = named("file",
                                    "a\x1f"
                                    "b\x1e"
                                    "c");
  EXPECT_EQ(flag_text(hostile), "--file abc");
  EXPECT_EQ(plain_text("no marks"), "no marks");
}

TEST(OptionText, says_who_uses_an_option_that_has_no_effect) {
  const std::string option = named("terms", "3"), with = named("method", "darts");
  EXPECT_EQ(plain_text(no_effect(option, with)), "terms = 3 has no effect with method = darts. Leave it out");
  EXPECT_EQ(flag_text(no_effect(option, with, {"cg"})),
            "--terms 3 has no effect with --method darts; only cg uses it. Leave it out");
  EXPECT_EQ(flag_text(no_effect(option, "", {"a", "b", "c"})),
            "--terms 3 has no effect here; only a, b and c use it. Leave it out");
}

}  // namespace
}  // namespace bilevel
