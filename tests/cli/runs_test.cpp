// The folders of runs as a user meets them: options from files, runs that go on, and what is said on the way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "bilevel/data/npy.h"
#include "bilevel/run/checkpoint.h"
#include "tests/cli/background.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const std::string ridge =
    "solve --problem ridge --algorithm aid-cg --iterations 12 --records 4 --seed 5 --threads 1 --outer-rate "
    "0.3";

class RunsTest : public ::testing::Test {
 protected:
  static json run_json(const std::string& arguments) {
    const Output output = run_program(arguments + " --json --quiet");
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return output.exit_code == 0 ? output.json() : json();
  }
  static Output refused(const std::string& arguments, int exit_code) {
    Output output = run_program(arguments);
    EXPECT_EQ(output.exit_code, exit_code) << output.err;
    EXPECT_THAT(output.out, IsEmpty());
    return output;
  }
  // As a process that was killed before its last word leaves it.
  static void unfinish(const std::string& folder) {
    json facts = json::parse(read_text(folder + "/run.json"));
    facts["status"] = "running";
    put(folder + "/run.json", facts.dump());
  }
  static json without_times(json report) {
    report.erase("folder");
    report.erase("seconds");
    for (json& line : report.at("history")) line.erase("seconds");
    return report;
  }

  const TemporaryFolder folder_;
};

TEST_F(RunsTest, OptionsComeFromARunsConfigFromJsonAndFromToml) {
  const json first = run_json(ridge + " --out " + folder_ / "first");
  const auto expect_the_same = [&](const std::string& config) {
    const std::string out = folder_ / ("of-" + std::filesystem::path(config).filename().string());
    const json again = run_json("solve --config " + config + " --out " + out);
    EXPECT_EQ(without_times(again), without_times(first)) << config;
    EXPECT_EQ(read_text(out + "/x.npy"), read_text(folder_ / "first/x.npy"));
  };
  expect_the_same(folder_ / "first/config.json");
  put(folder_ / "plain.json",
      R"({"problem": "ridge", "--algorithm": "aid-cg", "iterations": 12, "records": 4, "seed": 5,
          "threads": 1, "outer-rate": 0.3})");
  expect_the_same(folder_ / "plain.json");
  put(folder_ / "options.toml",
      "problem = \"ridge\"\nalgorithm = \"aid-cg\"\niterations = 12\nrecords = 4\nseed = 5\nthreads = 1\n"
      "outer-rate = 0.3\n");
  expect_the_same(folder_ / "options.toml");
  // What is typed comes first.
  const json longer =
      run_json("solve --iterations 13 --config " + folder_ / "plain.json" + " --out " + folder_ / "b");
  EXPECT_EQ(longer.at("iterations"), 13);
  const json effective = json::parse(read_text(folder_ / "b/config.json")).at("effective");
  EXPECT_EQ(effective.at("iterations"), 13);
  EXPECT_EQ(effective.at("outer_rate"), 0.3);
  EXPECT_EQ(effective.at("terms"), 10);  // nobody gave it
}

TEST_F(RunsTest, AConfigThatCannotBeTakenIsNamedWithItsOption) {
  put(folder_ / "typo.json", R"({"iteratoins": 3})");
  put(folder_ / "typo.toml", "iteratoins = 3\n");
  put(folder_ / "broken.json", "{\"iterations\": ");
  put(folder_ / "list.json", "[1, 2]");
  put(folder_ / "empty.toml", "# a job\nproblem = \n");
  put(folder_ / "section.toml", "[solve\niterations = 3\n");
  put(folder_ / "other.json", R"({"command": "clean", "options": {"--iterations": ["3"]}})");
  put(folder_ / "value.json", R"({"iterations": "many"})");
  put(folder_ / "resume.toml", "resume = \"" + folder_ / "somebody" + "\"\n");
  const std::pair<const char*, const char*> cases[] = {
      {"typo.json", "--iteratoins"},
      {"typo.toml", "--iteratoins"},
      {"broken.json",
       ": expected JSON: line 1, column 16: unexpected end of input; expected '[', "
       "'{', or a literal; correct the file, or start from a copy of a run's "
       "config.json"},
      {"list.json", "expected an object of options"},
      {"empty.toml", "line 2: `problem =` has no value; write one"},
      {"section.toml", "line 1: `[solve` does not end with ]"},
      {"other.json", "belongs to `bilevel clean`"},
      {"value.json", "many"},
      {"nowhere.json", "no such file"},
      {"resume.toml", "--resume cannot be set in a config file; pass it on the command line"}};
  for (const auto& [name, expected] : cases) {
    const Output output =
        refused("solve --problem ridge --config " + folder_ / name + " --out " + folder_ / "out", 2);
    EXPECT_THAT(output.err,
                AllOf(StartsWith("bilevel: --config " + folder_ / name + ": "), HasSubstr(expected)));
    const std::string after_name = output.err.substr(output.err.find(name) + std::string(name).size());
    EXPECT_THAT(after_name, Not(HasSubstr(name))) << "the file is named twice";
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  }
}

TEST_F(RunsTest, ResumeTakesOnlyARunOfItsCommandAsItBegan) {
  const std::string run = folder_ / "run";
  const json report = run_json(ridge + " --out " + run);
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_THAT(refused("solve --resume " + folder_ / "empty", 1).err,
              AllOf(HasSubstr("--resume " + folder_ / "empty"), HasSubstr("there is no run.json")));
  EXPECT_THAT(refused("clean --resume " + run, 2).err, HasSubstr("belongs to `bilevel solve`"));
  EXPECT_THAT(refused("solve --resume " + run + " --out " + folder_ / "b", 2).err,
              HasSubstr("its own folder"));
  EXPECT_THAT(refused("solve --resume " + run + " --iterations 20", 2).err,
              AllOf(HasSubstr("with --iterations"), HasSubstr("keeps its options"), HasSubstr("--config")));

  const Output finished = run_program("solve --json --resume " + run);
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("is finished"));
  EXPECT_EQ(finished.json(), report);
  const Output text = run_program("solve --resume " + run + " --quiet");
  EXPECT_THAT(text.err, IsEmpty());
  EXPECT_THAT(text.out, AllOf(HasSubstr(run + ": bilevel solve, finished"), HasSubstr("outer_loss")));
}

TEST_F(RunsTest, ADamagedCheckpointIsToldAndTheOneBeforeItServes) {
  const std::string run = folder_ / "run";
  const json report = run_json(ridge + " --save-every 0 --out " + run);
  const std::string x = read_text(run + "/x.npy"), metrics = read_text(run + "/metrics.jsonl");
  std::string bytes = read_text(run + "/checkpoint");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  for (const bool missing : {false, true}) {  // killed between two renames
    unfinish(run);
    put(run + "/checkpoint", bytes);
    if (missing) std::filesystem::remove(run + "/checkpoint");
    const Output output = run_program("solve --json --save-every 0 --resume " + run);
    ASSERT_EQ(output.exit_code, 0) << output.err;
    EXPECT_THAT(output.err, AllOf(HasSubstr("warning: " + run + "/checkpoint"),
                                  HasSubstr("checkpoint.previous, was read instead")));
    EXPECT_NO_THROW((void)read_checkpoint(run + "/checkpoint.previous"));  // the damaged one is not kept
    EXPECT_EQ(without_times(output.json()), without_times(report));
    EXPECT_EQ(read_text(run + "/x.npy"), x);
    EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 5);
    const std::string again = read_text(run + "/metrics.jsonl");
    EXPECT_EQ(std::count(again.begin(), again.end(), '\n'), 5);
  }
}

TEST_F(RunsTest, ARunThatConvergedIsNotTakenFurther) {
  const std::string run = folder_ / "run";
  const json report =
      run_json("solve --problem ridge --algorithm aid-cg --tolerance 1 --iterations 500 --out " + run);
  ASSERT_EQ(report.at("stopped"), "converged");
  unfinish(run);
  EXPECT_EQ(without_times(run_json("solve --resume " + run)), without_times(report));
}

TEST_F(RunsTest, AResumedRunGetsItsThreadsBackAndOthersAreSaid) {
  const std::string run = folder_ / "run";
  run_json(ridge + " --out " + run);
  unfinish(run);
  const Output same = run_program("solve --json --resume " + run);
  EXPECT_THAT(same.err, Not(HasSubstr("warning")));
  EXPECT_EQ(json::parse(read_text(run + "/run.json")).at("machine").at("threads"), 1);
  unfinish(run);
  const Output other = run_program("solve --json --threads 2 --resume " + run);
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, AllOf(HasSubstr("warning"), HasSubstr("threads")));
}

TEST_F(RunsTest, ARunWithoutOutGetsAFolderOfItsOwn) {
  const Output output = run_program(ridge + " >/dev/null && ls runs");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, ::testing::ContainsRegex("^solve-[0-9]+-[0-9]+-5\n$"));
  EXPECT_THAT(refused(ridge + " --out " + folder_ / "a" + " >/dev/null && '" +
                          std::getenv("BILEVEL_PROGRAM") + "' " + ridge + " --out " + folder_ / "a",
                      2)
                  .err,
              HasSubstr("there is a run in it already"));
}

TEST_F(RunsTest, WhatIsSaidIsChosen) {
  const auto said = [&](const std::string& level) {
    static int runs = 0;
    const Output output =
        run_program(ridge + " --json " + level + " --out " + folder_ / std::to_string(runs++));
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return output.err;
  };
  EXPECT_THAT(said("--quiet"), IsEmpty());
  EXPECT_THAT(said(""), IsEmpty());  // too short for a line
  EXPECT_THAT(said("--log-level warning"), IsEmpty());
  const std::string all = said("--log-level debug");
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 12);
  EXPECT_THAT(all, AllOf(HasSubstr("solve: 7/12, "), HasSubstr("loss "), HasSubstr("direction ")));
  EXPECT_THAT(said("--log-level debug --quiet"), IsEmpty());
}

TEST_F(RunsTest, ALongRunInAPipeSaysHowFarItIs) {
  const Output output = run_program(
      "solve --problem ridge --algorithm aid-cg --outer-rate 0.001 --iterations 1000000000 "
      "--budget-seconds 6 --json --out " +
      folder_ / "run");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.err, ::testing::ContainsRegex(
                              "solve: [0-9]+/1000000000, [0-9.]+ a second, loss .*, direction .*left\n"));
  EXPECT_THAT(output.err, Not(HasSubstr("\r")));
  EXPECT_LE(std::count(output.err.begin(), output.err.end(), '\n'), 2);
}

// A step that takes many seconds: the first signal waits for its end, the second does not.
TEST_F(RunsTest, ASecondSignalEndsItAtOnce) {
  const std::string run = folder_ / "run";
  Background program("solve --problem ridge --algorithm aid-cg --inner-steps 1000000 --quiet --out " + run,
                     folder_ / "err");
  ASSERT_TRUE(program.wait_until([&] { return std::filesystem::exists(run + "/metrics.jsonl"); }));
  ::usleep(200'000);
  program.signal(SIGINT);
  ::usleep(300'000);
  EXPECT_TRUE(program.wait_until([] { return true; })) << "the first one ended it in the middle of a step";
  const auto begin = std::chrono::steady_clock::now();
  const int status = program.end(SIGINT);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(run_program("show --json " + run).json().at("status"), "killed");
}

TEST_F(RunsTest, AFirstSignalSavesAndSaysHowToGoOn) {
  const std::string run = folder_ / "run";
  Background program(
      "solve --problem ridge --algorithm aid-cg --outer-rate 0.001 --iterations 100000000 --quiet --out " +
          run,
      folder_ / "err");
  ASSERT_TRUE(program.wait_until([&] { return std::filesystem::exists(run + "/metrics.jsonl"); }));
  const int status = program.end(SIGTERM);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_THAT(read_text(folder_ / "err"), HasSubstr("bilevel solve --resume " + run));
  EXPECT_EQ(run_program("show --json " + run).json().at("status"), "interrupted");
  EXPECT_TRUE(std::filesystem::exists(run + "/checkpoint"));
}

TEST_F(RunsTest, RunsAreListedAndShown) {
  const json report = run_json(ridge + " --out " + folder_ / "runs/a");
  run_json(ridge + " --out " + folder_ / "runs/deeper/b");
  unfinish(folder_ / "runs/deeper/b");
  run_json(ridge + " --out " + folder_ / "runs/damaged");
  put(folder_ / "runs/damaged/run.json", "{\"format\": 1, \"comm");

  const json list = run_program("runs --json " + folder_ / "runs").json().at("runs");
  ASSERT_EQ(list.size(), 3U);
  std::map<std::string, json> by_folder;
  for (const json& row : list) by_folder[row.at("folder")] = row;
  EXPECT_EQ(by_folder.at(folder_ / "runs/a").at("status"), "finished");
  EXPECT_EQ(by_folder.at(folder_ / "runs/a").at("last").at("step"), 12);
  EXPECT_EQ(by_folder.at(folder_ / "runs/deeper/b").at("status"), "killed");
  EXPECT_THAT(by_folder.at(folder_ / "runs/damaged").at("error"), HasSubstr("damaged/run.json"));
  const Output text = run_program("runs " + folder_ / "runs");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("finished"), HasSubstr("killed"), HasSubstr("damaged/run.json: expected JSON"),
                    HasSubstr("3 runs"), HasSubstr("outer_loss")));
  EXPECT_EQ(run_program("runs --json " + folder_ / "nowhere").json(), json({{"runs", json::array()}}));

  const json shown = run_program("show --json " + folder_ / "runs/a").json();
  EXPECT_EQ(shown.at("command"), "solve");
  EXPECT_EQ(shown.at("seed"), 5);
  EXPECT_EQ(shown.at("machine").at("threads"), 1);
  EXPECT_EQ(shown.at("config").at("options").at("algorithm"), "aid-cg");
  EXPECT_EQ(shown.at("metrics").size(), 5U);
  EXPECT_EQ(shown.at("summary"), report);
  EXPECT_THAT(run_program("show " + folder_ / "runs/a").out,
              AllOf(HasSubstr("bilevel solve, finished"), HasSubstr("options that were given"),
                    HasSubstr("last record"), HasSubstr("summary")));
  EXPECT_THAT(run_program("show " + folder_ / "runs/deeper/b").out,
              HasSubstr("resume it with: bilevel solve --resume " + folder_ / "runs/deeper/b"));
  EXPECT_THAT(refused("show " + folder_ / "runs/damaged", 1).err, HasSubstr("damaged/run.json"));
  EXPECT_THAT(refused("show --json " + folder_ / "runs", 2).err, HasSubstr("there is no run.json"));
}

}  // namespace
}  // namespace bilevel::test
