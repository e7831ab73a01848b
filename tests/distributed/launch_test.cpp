// One job by several processes: what comes out, how it ends where one of them fails, and who may start them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <system_error>
#include <vector>

#include "bilevel/data/npy.h"
#include "bilevel/distributed/process_group.h"
#include "bilevel/run/run_folder.h"
#include "tests/cli/background.h"
#include "tests/cli/program.h"
#include "tests/distributed/rank_processes.h"
#include "tests/distributed/ranks.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

const std::string cleaning = "solve --problem hyper-cleaning --iterations 20 --threads 1 ";

bool is_installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

// By a shell: a launcher starts the program that runs, which here would be the tests.
Output launched(int processes, const std::string& arguments) {
  return run_by_shell("launch --processes " + std::to_string(processes) + " -- " + arguments);
}

class Launch : public ::testing::Test {
 protected:
  // The run of one process serves all tests.
  struct Alone {
    TemporaryFolder folder;
    Output output = run_by_shell(cleaning + "--json --out '" + folder / "alone" + "'");
  };
  static const Alone& one_process() {
    static const Alone made;
    return made;
  }
  void SetUp() override {
    NEEDS_PROGRAM();
    ASSERT_EQ(one_process().output.exit_code, 0) << one_process().output.err;
    alone = one_process().output.json();
  }
  void expect_the_same(const Output& output, const std::string& run, int ranks) const {
    ASSERT_EQ(output.exit_code, 0) << output.err;
    const nlohmann::json json = output.json();
    EXPECT_EQ(json["communication"]["ranks"], ranks);
    EXPECT_GT(json["communication"]["bytes"], 0);
    EXPECT_NEAR(json["outer_loss"].get<double>(), alone["outer_loss"].get<double>(), 1e-10);
    EXPECT_EQ(json["counts"]["hessian"], alone["counts"]["hessian"]);
    EXPECT_EQ(json["counts"]["samples"], alone["counts"]["samples"]);
    EXPECT_LT(relative_error(read_npy(run + "/x.npy"), read_npy(one_process().folder / "alone/x.npy")),
              1e-10);
    EXPECT_LT(relative_error(read_npy(run + "/w.npy"), read_npy(one_process().folder / "alone/w.npy")),
              1e-10);
  }
  TemporaryFolder folder;
  nlohmann::json alone;
};

TEST_F(Launch, two_and_three_processes_find_what_one_finds) {
  EXPECT_FALSE(alone.contains("communication"));
  for (const int ranks : {2, 3}) {
    const std::string run = folder / std::to_string(ranks);
    expect_the_same(launched(ranks, cleaning + "--json --out '" + run + "'"), run, ranks);
  }
}

// The way to NCCL where there is one GPU.
TEST_F(Launch, one_process_with_a_groups_options_is_a_group) {
  const std::string run = folder / "one";
  const Output output = launched(1, cleaning + "--backend gloo --json --out '" + run + "'");
  expect_the_same(output, run, 1);
  EXPECT_EQ(output.json()["outer_loss"], alone["outer_loss"]);
  EXPECT_TRUE(at::equal(read_npy(run + "/x.npy"), read_npy(one_process().folder / "alone/x.npy")));
  EXPECT_TRUE(at::equal(read_npy(run + "/w.npy"), read_npy(one_process().folder / "alone/w.npy")));
  EXPECT_FALSE(
      launched(1, cleaning + "--json --out '" + folder / "plain" + "'").json().contains("communication"));
}

TEST_F(Launch, mpirun_starts_them_too) {
  if (!is_installed("mpirun")) GTEST_SKIP() << "mpirun is not here (Debian: openmpi-bin)";
  const std::string run = folder / "mpi";
  const std::string program = std::getenv("BILEVEL_PROGRAM");
  const std::string line =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun --oversubscribe -n 2 '" +
      program + "' " + cleaning + "--json --out '" + run + "' >'" + folder / "out" + "' 2>'" +
      folder / "err" + "'";
  Output output;
  output.exit_code = std::system(line.c_str());
  output.out = read_text(folder / "out");
  output.err = read_text(folder / "err");
  expect_the_same(output, run, 2);
}

TEST_F(Launch, srun_starts_them_too) {
  if (!is_installed("srun") || !is_installed("slurmctld") || !is_installed("slurmd") ||
      !is_installed("munged")) {
    GTEST_SKIP() << "SLURM is not here (Debian: slurm-wlm, munge)";
  }
  const std::string script = std::string(std::getenv("BILEVEL_SOURCE_DIR")) + "/tests/scripts/one-node-slurm";
  const std::string run = folder / "slurm";
  const std::string line = "timeout 180 '" + script + "' '" + folder / "cluster" +
                           "' srun -n 2 --overcommit '" + std::string(std::getenv("BILEVEL_PROGRAM")) + "' " +
                           cleaning + "--json --out '" + run + "' >'" + folder / "out" + "' 2>'" +
                           folder / "err" + "'";
  const int status = std::system(line.c_str());
  Output output;
  output.exit_code = WEXITSTATUS(status);
  output.out = read_text(folder / "out");
  output.err = read_text(folder / "err");
  if (output.exit_code == 77) GTEST_SKIP() << "SLURM does not start here: " << output.err;
  expect_the_same(output, run, 2);
}

// ---- what is refused ----

TEST(Ranks, commands_that_do_not_divide_their_work_are_refused) {
  NEEDS_PROGRAM();
  const Output output = launched(2, "check --problem ridge");
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_THAT(
      output.err,
      HasSubstr("bilevel launch started 2 processes of `bilevel check`, each of which would do all "
                "the work: only solve, clean, tune, interact, search, train, learn, compare, reproduce "
                "divide their work; start one process"));
}

TEST(Ranks, options_of_a_group_are_refused_without_one) {
  NEEDS_PROGRAM();
  const Output output = run_by_shell("solve --problem ridge --timeout 3");
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_EQ(
      output.err,
      "bilevel: --timeout: there is only one process; start several with `bilevel launch`, mpirun, srun or "
      "torchrun\n");
}

TEST(Ranks, budgets_in_seconds_and_automatic_methods_are_refused) {
  NEEDS_PROGRAM();
  const Output seconds = launched(2, "solve --problem ridge --budget-seconds 1 --threads 1");
  EXPECT_EQ(seconds.exit_code, 2);
  EXPECT_THAT(
      seconds.err,
      HasSubstr("--budget-seconds 1 with 2 ranks: their clocks would stop them at different iterations; "
                "give --iterations or --budget-calls"));
  // One message, of one of them.
  EXPECT_EQ(seconds.err.find("with 2 ranks"), seconds.err.rfind("with 2 ranks")) << seconds.err;
  const Output chosen = launched(2, "solve --problem ridge --method auto --threads 1");
  EXPECT_EQ(chosen.exit_code, 2);
  EXPECT_THAT(chosen.err,
              HasSubstr("--method auto with 2 ranks: let `bilevel diagnose` choose in one process"));
}

// It may do what several may not; a timeout alone, which has nobody to wait for, makes no group.
TEST(Ranks, a_launchers_only_process_is_refused_nothing) {
  NEEDS_PROGRAM();
  const Output alone = launched(1, "solve --problem ridge --iterations 2 --threads 1 --timeout 3 --json");
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_FALSE(alone.json().contains("communication"));
  for (const std::string more : {"--budget-seconds 100", "--method auto"}) {
    const std::string line = "solve --problem ridge --iterations 2 --threads 1 --backend gloo --json " + more;
    const Output output = launched(1, line);
    ASSERT_EQ(output.exit_code, 0) << output.err;
    EXPECT_EQ(output.json()["communication"]["ranks"], 1);
  }
}

// Two processes with lines of their own.
Output two_ranks(const TemporaryFolder& folder, const std::string& first, const std::string& second) {
  const std::string program = std::getenv("BILEVEL_PROGRAM"), meeting = folder / "meeting";
  const auto line = [&](int rank, const std::string& arguments) {
    const std::string number = std::to_string(rank);
    return "RANK=" + number + " WORLD_SIZE=2 LOCAL_RANK=" + number +
           " LOCAL_WORLD_SIZE=2 BILEVEL_RENDEZVOUS='" + meeting + "' '" + program + "' " + arguments + " >'" +
           folder / ("out" + number) + "' 2>'" + folder / ("err" + number) + "'";
  };
  const std::string both =
      "cd '" + folder / "" + "'; " + line(1, second) + " & " + line(0, first) + "; code=$?; wait; exit $code";
  Output output;
  const int status = std::system(both.c_str());
  output.exit_code = WEXITSTATUS(status);
  output.out = read_text(folder / "out0") + read_text(folder / "out1");
  output.err = read_text(folder / "err0") + read_text(folder / "err1");
  return output;
}

TEST(Ranks, different_options_are_named) {
  NEEDS_PROGRAM();
  const TemporaryFolder folder;
  const Output output = two_ranks(folder, "solve --problem ridge --seed 3 --threads 1",
                                  "solve --problem ridge --seed 4 --threads 1");
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_THAT(output.err, HasSubstr("the ranks have different options: --seed 3 on rank 0 and --seed 4 on "
                                    "rank 1; start all of them the same way"));
  EXPECT_EQ(output.err.find("different options"), output.err.rfind("different options")) << output.err;
}

TEST(Ranks, different_backends_are_named) {
  NEEDS_PROGRAM();
  const TemporaryFolder folder;
  const Output output = two_ranks(folder, "solve --problem ridge --threads 1 --backend gloo --timeout 20",
                                  "solve --problem ridge --threads 1 --timeout 20");
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_THAT(output.err, HasSubstr("rank 1 of 2 (process "));
  EXPECT_THAT(
      output.err,
      HasSubstr("): was started with a different backend (none given) from rank 0 (gloo); start all of "
                "them in the same way"));
  EXPECT_EQ(output.err.find("bilevel: "), output.err.rfind("bilevel: ")) << output.err;
}

// ---- ranks that fail ----

class Faults : public ::testing::TestWithParam<int> {};

TEST_P(Faults, of_one_rank_end_all_and_leave_a_run_that_goes_on) {
  NEEDS_PROGRAM();
  const int number = GetParam();
  const TemporaryFolder folder;
  const std::string run = folder / "run", errors = folder / "err";
  const std::string line =
      "solve --problem hyper-cleaning --iterations 100000 --threads 1 --save-every 0.1 --records 3 --out '" +
      run + "'";
  Background group("launch --processes 3 -- " + line + " --timeout 4", errors);
  ASSERT_TRUE(group.wait_until([&] { return fs::exists(run + "/checkpoint.previous"); }))
      << read_text(errors);
  const pid_t victim = process_of_rank(group.process(), 2);
  ASSERT_GT(victim, 0);
  const auto begin = std::chrono::steady_clock::now();
  ::kill(victim, number);
  const int status = group.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4 + 25));
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), number == SIGKILL ? 137 : 1);
  const std::string err = read_text(errors);
  EXPECT_TRUE(std::regex_search(
      err, std::regex(number == SIGKILL
                          ? "bilevel: rank 2 of 3 \\(process " + std::to_string(victim) +
                                " on .*\\): was killed, or ended without a word\n"
                          : "bilevel: rank 2 of 3 \\(process " + std::to_string(victim) +
                                " on .*\\): is stopped \\(SIGSTOP\\), and the others waited 4 s for it\n")))
      << err;
  EXPECT_EQ(err.find("bilevel: "), err.rfind("bilevel: ")) << err;
  EXPECT_EQ(read_run(run).status, RunStatus::failed);
  EXPECT_THAT(read_run(run).message, HasSubstr("rank 2 of 3"));

  // On from the last checkpoint with two ranks, until somebody stops it.
  // For a moment between two names there is no checkpoint.
  const auto time_of = [&] {
    std::error_code none;
    return fs::last_write_time(run + "/checkpoint", none);
  };
  const auto written = time_of();
  Background on("launch --processes 2 -- solve --threads 1 --resume '" + run + "' --save-every 0.1", errors);
  ASSERT_TRUE(on.wait_until([&] { return time_of() > written; })) << read_text(errors);
  const int stopped = on.end(SIGTERM);
  ASSERT_TRUE(WIFEXITED(stopped)) << read_text(errors);
  EXPECT_EQ(WEXITSTATUS(stopped), 130) << read_text(errors);
  EXPECT_EQ(read_run(run).status, RunStatus::interrupted);
  EXPECT_THAT(
      read_text(errors),
      HasSubstr(
          "the run was saved by 3 ranks and is resumed by 2: sums are added in a different order, so its "
          "numbers agree with those of an uninterrupted run up to rounding, not to the same bits"));
}
INSTANTIATE_TEST_SUITE_P(By, Faults, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& row) { return row.param == SIGKILL ? "SIGKILL" : "SIGSTOP"; });

TEST(Ranks, a_second_group_on_a_folder_is_refused) {
  NEEDS_PROGRAM();
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  Background first(
      "launch --processes 2 -- solve --problem hyper-cleaning --iterations 100000 --threads 1 --save-every "
      "0.1 --out '" +
          run + "'",
      folder / "err");
  ASSERT_TRUE(first.wait_until([&] { return fs::exists(run + "/checkpoint"); })) << read_text(folder / "err");
  const Output second = launched(2, "solve --resume '" + run + "'");
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("rank 0 of 2"));
  EXPECT_THAT(second.err, HasSubstr("another process"));
  EXPECT_EQ(first.end(SIGTERM), 130 << 8) << read_text(folder / "err");
}

// ---- work that is dealt out ----

nlohmann::json without_times(nlohmann::json value) {
  if (value.is_object()) {
    for (const char* of_a_clock : {"seconds", "by_seconds"}) value.erase(of_a_clock);
  }
  if (value.is_structured()) {
    for (auto& part : value) part = without_times(part);
  }
  return value;
}

// The runs are the same to the bit. The value function is solved from where the last solve ended, which
// another order of the algorithms changes in the last digits.
void expect_the_same_table(const nlohmann::json& found, const nlohmann::json& expected,
                           const std::string& place) {
  if (expected.is_number_float()) {
    ASSERT_TRUE(found.is_number()) << place;
    EXPECT_NEAR(found.get<double>(), expected.get<double>(), 1e-12) << place;
    return;
  }
  ASSERT_EQ(found.type(), expected.type()) << place;
  ASSERT_EQ(found.size(), expected.size()) << place;
  if (!expected.is_structured()) {
    EXPECT_EQ(found, expected) << place;
    return;
  }
  for (const auto& [key, value] : expected.items()) {
    expect_the_same_table(expected.is_array() ? found.at(std::stoul(key)) : found.at(key), value,
                          place + "/" + key);
  }
}

TEST(Ranks, a_comparison_of_ten_algorithms_has_the_same_table_on_four_ranks) {
  NEEDS_PROGRAM();
  const TemporaryFolder folder;
  const std::string line =
      "compare --problem ridge --algorithms aid-cg,itd,bsa,ttsa,stocbio,soba,saba,fsla,ma-soba,f2sa --seeds "
      "0-1 "
      "--iterations 30 --outer-rate 0.01 --threads 1 --json --out '";
  const Output alone = run_by_shell(line + folder / "one" + "'"),
               dealt = launched(4, line + folder / "four" + "'");
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  ASSERT_EQ(dealt.exit_code, 0) << dealt.err;
  EXPECT_EQ(without_times(alone.json())["algorithms"].size(), 10U);
  expect_the_same_table(without_times(dealt.json()), without_times(alone.json()), "");
  EXPECT_TRUE(fs::exists(folder / "four/runs.csv"));
}

}  // namespace
}  // namespace bilevel::test
