// Signals, raised for real.
#include "bilevel/run/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace bilevel::test {
namespace {

int seen_by_old_handler = 0;
void old_handler(int number) { seen_by_old_handler = number; }

TEST(StopSignal, a_first_signal_is_a_question_that_a_loop_asks) {
  for (const int number : {SIGINT, SIGTERM}) {
    const StopSignal stop;
    EXPECT_FALSE(stop_requested());  // not that of the turn before
    ASSERT_EQ(std::raise(number), 0);
    EXPECT_TRUE(stop_requested());
  }
}

TEST(StopSignal, the_first_signal_is_acknowledged_at_once) {
  const StopSignal stop;
  ::testing::internal::CaptureStderr();
  std::raise(SIGINT);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "stopping after this step, with the state saved; Ctrl-C again ends at once\n");
}

TEST(StopSignal, one_inside_another_forgets_nothing) {
  const StopSignal outside;
  std::raise(SIGTERM);
  {
    const StopSignal inside;
    EXPECT_TRUE(stop_requested());
  }
  EXPECT_TRUE(stop_requested());
}

TEST(StopSignal, the_handlers_before_come_back) {
  for (const int number : {SIGINT, SIGTERM}) {
    seen_by_old_handler = 0;
    const auto before = std::signal(number, old_handler);
    {
      const StopSignal stop;
      std::raise(number);
      EXPECT_EQ(seen_by_old_handler, 0);
      EXPECT_TRUE(stop_requested());
    }
    std::raise(number);
    EXPECT_EQ(seen_by_old_handler, number);
    std::signal(number, before);
  }
}

TEST(StopSignalDeathTest, a_second_signal_ends_the_process_at_once) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int second : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const StopSignal stop;
          std::raise(SIGINT);
          std::raise(second);
          std::exit(7);
        },
        ::testing::ExitedWithCode(130), "^stopping after this step[^\n]*\n$");
  }
}

}  // namespace
}  // namespace bilevel::test
