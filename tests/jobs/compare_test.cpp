// The job `compare` as a C++ program calls it, in memory and with a folder.
#include "bilevel/jobs/compare.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/run/run_folder.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

CompareJobOptions two_on_quadratic() {
  CompareJobOptions options;
  options.given.set(options.problem.problem, std::string("quadratic"));
  options.given.set(options.compute.threads, 1);
  options.given.set(options.compare.algorithms, std::vector<std::string>{"aid-cg", "soba"});
  options.given.set(options.seeds, SeedList{{1, 2}});
  options.given.set(options.algorithm.settings.outer.rate, 0.1);
  options.given.set(options.algorithm.solve.oracle_calls, int64_t{60});
  return options;
}

// The numbers of the function below it; a folder changes none of them.
TEST(CompareJob, IsTheSameInMemoryAndInAFolder) {
  const CompareJobOptions options = two_on_quadratic();
  RunContext memory;
  const CompareJobResult first = run_compare(options, memory);
  EXPECT_EQ(first.end.status, RunStatus::finished);
  EXPECT_THAT(first.folder, IsEmpty());
  EXPECT_FALSE(first.options.search.on);
  EXPECT_EQ(first.options.settings.outer.rate, 0.1);
  const Comparison direct =
      compare_algorithms(*make_problem("quadratic", ProblemOptions{}).problem, first.options);
  ASSERT_EQ(direct.algorithms.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const auto &ours = first.comparison.algorithms[i], &theirs = direct.algorithms[i];
    ASSERT_EQ(ours.runs.size(), 2U);
    for (size_t seed = 0; seed < 2; ++seed) {
      EXPECT_EQ(ours.runs[seed].seed, seed + 1);
      EXPECT_TRUE(ours.runs[seed].summary.state.x.equal(theirs.runs[seed].summary.state.x));
      EXPECT_EQ(ours.runs[seed].records.back().value, theirs.runs[seed].records.back().value);
    }
    EXPECT_EQ(first.json.at("algorithms")[i].at("loss").at("mean"),
              over_seeds(theirs, first.options.settings).value.mean);
  }
  // A rule that takes one step of w an iteration has no T.
  EXPECT_FALSE(first.json.at("algorithms")[0].at("inner_steps").is_null());
  EXPECT_TRUE(first.json.at("algorithms")[1].at("inner_steps").is_null());

  const TemporaryFolder folder;
  RunContext kept({.keep = true, .out = folder / "run"}, {});
  const CompareJobResult second = run_compare(options, kept);
  EXPECT_EQ(second.folder, folder / "run");
  EXPECT_EQ(second.json.at("algorithms")[1].at("loss"), first.json.at("algorithms")[1].at("loss"));
  for (const char* name : {"runs.csv", "by_seconds.csv", "by_oracle_calls.csv", "summary.json"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / "run/" + name)) << name;
  }
  EXPECT_EQ(read_run(folder / "run").status, RunStatus::finished);
  const StoredRun stored = read_stored_run(folder / "run");
  EXPECT_EQ(stored.job, "compare");
  CompareJobOptions again;
  give_rest(OptionsView(again), stored.given);
  EXPECT_EQ(again.seeds.seeds, options.seeds.seeds);
  EXPECT_EQ(again.compare.algorithms, options.compare.algorithms);
  EXPECT_EQ(again.algorithm.solve.oracle_calls, 60);
}

TEST(CompareJob, CanBeInterruptedBetweenTwoRuns) {
  const TemporaryFolder folder;
  int asked = 0;
  RunContext context({.keep = true, .out = folder / "run"}, {.interrupted = [&] { return ++asked > 2; }});
  const CompareJobResult result = run_compare(two_on_quadratic(), context);
  EXPECT_EQ(result.end.status, RunStatus::interrupted);
  EXPECT_THAT(result.comparison.algorithms, IsEmpty());
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(read_run(folder / "run").status, RunStatus::interrupted);
}

TEST(CompareJob, ASeedListIsReadBackFromItsWord) {
  for (const auto& [word, seeds] : std::vector<std::pair<std::string, std::vector<uint64_t>>>{
           {"0-2", {0, 1, 2}}, {"0", {0}}, {"2-2", {2}}, {"0,3-4,9", {0, 3, 4, 9}}, {"7,5", {7, 5}}}) {
    SeedList list;
    read_word(word, list);
    EXPECT_EQ(list.seeds, seeds) << word;
    EXPECT_EQ(word_of(list), word);
  }
  // More than a range may hold are two ranges.
  SeedList many;
  for (uint64_t seed = 0; seed < 1500; ++seed) many.seeds.push_back(seed);
  SeedList read;
  read_word(word_of(many), read);
  EXPECT_EQ(read.seeds, many.seeds);
  SeedList list;
  for (const std::string wrong : {"two", "3-1", "0,,1", "0-2000", "-1", "1.5", ""}) {
    EXPECT_THROW(read_word(wrong, list), std::invalid_argument) << wrong;
  }
}

TEST(CompareJob, NeedsAlgorithmsAndReadsTheirOptions) {
  const auto refusal = [](const CompareJobOptions& options) {
    RunContext context;
    try {
      run_compare(options, context);
    } catch (const OptionError& error) {
      return flag_text(error.marked());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(CompareJobOptions{}), HasSubstr("--algorithms is required"));
  CompareJobOptions unread = two_on_quadratic();
  unread.compare.algorithms = {"itd", "krmd"};
  unread.given.set(unread.algorithm.settings.hypergradient.curvature.damping, 1.0);
  EXPECT_THAT(refusal(unread), HasSubstr("--damping 1 has no effect with itd, krmd"));
  // One algorithm cannot be chosen where several run.
  CompareJobOptions options;
  EXPECT_EQ(OptionsView(options).find("algorithm"), nullptr);
  EXPECT_NE(OptionsView(options).find("method"), nullptr);
}

}  // namespace
}  // namespace bilevel::test
