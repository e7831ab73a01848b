// What is around a job: kept in a folder or in memory, and what config.json says of it.
#include "bilevel/run/run_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bilevel/fields/options_view.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  double rate = 0.1;
  int64_t terms = 10;
  std::string data = {};
  Given given = {};
  static const Fields<Options>& fields() {
    static const Fields<Options> table = [] {
      Fields<Options> f;
      f.add(
          "inner_rate", [](auto& o) -> auto& { return o.rate; }, "");
      f.add(
          "terms", [](auto& o) -> auto& { return o.terms; }, "");
      f.add(
           "data", [](auto& o) -> auto& { return o.data; }, "")
          .is(FieldKind::place);
      return f;
    }();
    return table;
  }
};

TEST(RunContext, WithoutAPlaceNothingIsKeptSaidOrInterrupted) {
  RunContext context;
  Options options;
  context.open("solve", 0, OptionsView(options));
  EXPECT_FALSE(context.has_folder());
  EXPECT_EQ(context.folder_name(), "");
  EXPECT_FALSE(context.load().has_value());
  EXPECT_FALSE(context.interrupted());
  context.record({{"step", 1}});
  context.save({});
  context.warning("nobody hears it");
  context.end(RunStatus::finished, "", {});
  EXPECT_THROW(context.work([] { throw std::runtime_error("as it came"); }), std::runtime_error);
}

TEST(RunContext, TheFolderHasWhatWasGivenWhatIsInEffectAndNotes) {
  const TemporaryFolder folder;
  const std::string out = folder / "run";
  Options options;
  OptionsView view(options);
  view.give(view.at("terms"), {"3"});
  {
    RunContext context({.keep = true, .out = out}, {});
    context.note("auto", {{"method", "cg"}});
    context.open("solve", 7, view);
    EXPECT_EQ(context.folder_name(), out);
    context.end(RunStatus::interrupted, "", {{"loss", 1}});
  }
  EXPECT_EQ(read_json_file(out + "/config.json")["options"], Json({{"terms", 3}}));
  const StoredRun stored = read_stored_run(out);
  EXPECT_EQ(stored.job, "solve");
  EXPECT_EQ(stored.given, (NamedWords{{"terms", {"3"}}}));
  EXPECT_EQ(stored.effective, (NamedWords{{"inner_rate", {"0.1"}}, {"terms", {"3"}}}));
  EXPECT_EQ(read_run(out).seed, 7U);

  RunContext resumed({.keep = true, .resume = out}, {});
  EXPECT_EQ(resumed.notes()["auto"]["method"], "cg");
}

// A signal that comes as soon as another process sees the run must find somebody who listens for it.
TEST(RunContext, ItIsSaidThatARunOpensBeforeOthersCanSeeIt) {
  const TemporaryFolder folder;
  const std::string out = folder / "run";
  int times = 0;
  RunContext context({.keep = true, .out = out}, {.opening = [&] {
                       ++times;
                       EXPECT_FALSE(std::filesystem::exists(out + "/run.json"));
                     }});
  Options options;
  context.open("solve", 0, OptionsView(options));
  EXPECT_EQ(times, 1);
  EXPECT_TRUE(std::filesystem::exists(out + "/run.json"));
}

TEST(RunContext, AnExceptionEndsTheRunAsFailed) {
  const TemporaryFolder folder;
  const std::string out = folder / "run";
  Options options;
  {
    RunContext context({.keep = true, .out = out}, {});
    context.open("solve", 0, OptionsView(options));
    EXPECT_THROW(context.work([] { throw std::runtime_error("the disk is full"); }), std::runtime_error);
  }
  EXPECT_EQ(read_run(out).status, RunStatus::failed);
  EXPECT_EQ(read_run(out).message, "the disk is full");
}

TEST(StoredConfig, FlagsAndWordsOfEarlierVersionsBecomeFieldsAndNumbers) {
  const Json before = Json::parse(R"({
    "command": "solve", "version": "0.1.0",
    "options": {"--terms": ["3"], "--inner-rate": ["0.50"], "--data": ["3 d"], "--bias": ["true"],
                "--operations": ["none", "skip_connect"], "--auto-choice": ["{\"method\": \"cg\"}"]},
    "effective": {"--terms": "3", "--seed": "18446744073709551615", "--problem": "ridge"}})");
  const Json now = current_config(before);
  EXPECT_EQ(now["options"].dump(),
            R"({"terms":3,"inner_rate":0.5,"data":"3 d","bias":true,"operations":["none","skip_connect"]})");
  EXPECT_EQ(now["effective"].dump(), R"({"terms":3,"seed":18446744073709551615,"problem":"ridge"})");
  EXPECT_EQ(now["notes"]["auto"]["method"], "cg");
  EXPECT_EQ(current_config(now), now);
}

TEST(StoredConfig, FieldsThatWereCalledOtherwiseHaveTodaysNames) {
  const Json before = Json::parse(R"({
    "command": "search", "options": {"--mixed": ["exact"], "series_rate": "auto"},
    "effective": {"mixed": "exact", "series_rate": "auto", "difference_mixed": true, "terms": 2}})");
  const Json now = current_config(before);
  EXPECT_EQ(now["options"].dump(), R"({"cross":"exact","linear_rate":"auto"})");
  EXPECT_EQ(now["effective"].dump(),
            R"({"cross":"exact","linear_rate":"auto","difference_cross":true,"terms":2})");
}

}  // namespace
}  // namespace bilevel::test
