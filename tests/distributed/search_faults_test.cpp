// A search on three ranks of which one is killed or stopped at a random moment: all end, and two go on from
// the last checkpoint. BILEVEL_FAULTS = how many are killed, for more than continuous integration has time
// for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "bilevel/core/random.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/run/run_folder.h"
#include "tests/cli/background.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"
#include "tests/distributed/rank_processes.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

class SearchFaults : public ::testing::Test {
 protected:
  static constexpr int timeout = 4;

  void SetUp() override {
    NEEDS_PROGRAM();
    nas::SyntheticImages drawn{.samples = 80, .channels = 1, .noise = 0.3, .seed = 1};
    drawn.classes = 4;
    const LabelledImages images = nas::draw_images(drawn, doubles());
    put(folder / "images", idx({80, 8, 8}, (images.images * 40 + 128).clamp(0, 255)));
    put(folder / "labels", idx({80}, images.labels));
  }

  // Sends one rank a signal after so many seconds of a search that has saved something. What ends must be
  // found by the others, and two ranks go on from the last checkpoint without losing an epoch before it.
  void check(int number, int rank, double after) {
    const std::string run = folder / ("run" + std::to_string(runs_++)), errors = folder / "err";
    Background group("launch --processes 3 -- search --method idarts --data '" + folder / "images" +
                         "' --labels '" + folder / "labels" +
                         "' --channels 2 --cells 1 --batch 6 --crop-padding 1 --epochs 5000 --threads 1 "
                         "--save-every 0.05 --timeout " +
                         std::to_string(timeout) + " --out '" + run + "'",
                     errors);
    ASSERT_TRUE(group.wait_until([&] { return fs::exists(run + "/checkpoint.previous"); }))
        << read_text(errors);
    ::usleep(static_cast<useconds_t>(after * 1e6));
    const pid_t victim = process_of_rank(group.process(), rank);
    ASSERT_GT(victim, 0);
    const auto begin = std::chrono::steady_clock::now();
    ::kill(victim, number);
    const int status = group.wait();
    const std::chrono::duration<double> ending = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(ending.count(), timeout + 25) << "rank " << rank << ", signal " << number;
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), number == SIGKILL ? 137 : 1) << read_text(errors);
    EXPECT_THAT(read_text(errors), HasSubstr("rank " + std::to_string(rank) + " of 3 (process " +
                                             std::to_string(victim) + " on "));

    const std::string before = read_text(run + "/metrics.jsonl");
    std::error_code none;
    const auto saved = fs::last_write_time(run + "/checkpoint", none);
    Background on("launch --processes 2 -- search --threads 1 --save-every 0.05 --resume '" + run + "'",
                  errors);
    ASSERT_TRUE(on.wait_until([&] {
      std::error_code between_two_names;
      const auto now = fs::last_write_time(run + "/checkpoint", between_two_names);
      return !between_two_names && now > saved;
    })) << read_text(errors);
    EXPECT_EQ(on.end(SIGTERM), 130 << 8) << read_text(errors);
    EXPECT_THAT(read_text(errors), HasSubstr("saved by 3 ranks and is resumed by 2"));
    EXPECT_EQ(read_run(run).status, RunStatus::interrupted);
    // Every epoch that was recorded before is there again: the last ones may have been after the checkpoint,
    // and are made again to rounding.
    const std::string after_all = read_text(run + "/metrics.jsonl");
    const size_t kept = before.size() - std::min(before.size(), last_lines(before, 2));
    EXPECT_THAT(after_all, StartsWith(before.substr(0, kept)));
    EXPECT_GE(lines(after_all), lines(before) - 2);
  }

  static size_t lines(const std::string& text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  // The size of the last `count` lines, of which the very last may be broken off.
  static size_t last_lines(const std::string& text, int count) {
    size_t at = text.size();
    while (count-- > 0 && at != 0 && at != std::string::npos) at = text.rfind('\n', at - 1);
    return at == std::string::npos ? text.size() : text.size() - at;
  }

  TemporaryFolder folder;
  int runs_ = 0;
};

TEST_F(SearchFaults, a_rank_that_is_killed_ends_all_and_two_go_on) {
  const char* given = std::getenv("BILEVEL_FAULTS");
  Random random(19);
  for (int i = given != nullptr ? std::atoi(given) : 1; i > 0; --i) {
    const int rank = static_cast<int>(random.below(3));
    check(SIGKILL, rank, 0.001 * static_cast<double>(random.below(1000)));
  }
}

TEST_F(SearchFaults, a_rank_that_is_stopped_ends_all_and_two_go_on) { check(SIGSTOP, 1, 0.3); }

}  // namespace
}  // namespace bilevel::test
