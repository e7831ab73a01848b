// The job `reproduce`, interrupted and resumed.
#include "reproduce/job.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bilevel/run/run_context.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {
namespace {

using reproduce::ReproduceJobOptions;
using reproduce::ReproduceJobResult;
using reproduce::run_reproduce;

ReproduceJobOptions four_searches() {
  ReproduceJobOptions o;
  o.item = "idarts:table1";
  o.settings.epochs = 1;
  o.settings.data_dir = "/nowhere";  // images are made up
  o.seeds.seeds = {0};
  o.compute.threads = 1;
  return o;
}

std::vector<std::string> cells_of(const ReproduceJobResult& result) {
  std::vector<std::string> cells;
  for (const auto& run : result.json.at("runs")) cells.push_back(run.at("genotype").get<std::string>());
  return cells;
}

TEST(ReproduceJob, ContinuesWithTheRunsThatAreMissing) {
  const TemporaryFolder folder;
  RunContext whole_context;
  const ReproduceJobResult whole = run_reproduce(four_searches(), whole_context);

  {
    bool stop = false;
    RunContext::Listener listener;
    listener.progress = [&](const std::string& what) {
      stop = stop || what.find("DARTS") != std::string::npos;
    };
    listener.interrupted = [&] { return stop; };
    RunContext first({.keep = true, .out = folder / "run"}, listener);
    EXPECT_EQ(run_reproduce(four_searches(), first).end.status, RunStatus::interrupted);
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "run/finished/grid-0-run-1"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/finished/grid-0-run-2"));

  std::string seen;
  RunContext again({.keep = true, .resume = folder / "run"},
                   {.progress = [&](const std::string& what) { seen += what + "\n"; }});
  const ReproduceJobResult resumed = run_reproduce(four_searches(), again);
  EXPECT_EQ(resumed.end.status, RunStatus::finished);
  EXPECT_EQ(cells_of(resumed), cells_of(whole));
  EXPECT_EQ(resumed.json.at("tables"), whole.json.at("tables"));
  EXPECT_THAT(seen, ::testing::Not(::testing::HasSubstr("RandomNAS")));
  EXPECT_THAT(seen, ::testing::HasSubstr("iDARTS"));
}

}  // namespace
}  // namespace bilevel::test
