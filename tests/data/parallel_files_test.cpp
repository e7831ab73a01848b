#include "bilevel/data/parallel_files.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/data/files.h"

namespace bilevel::test {
namespace {

TEST(ParallelFiles, WorksOnEachOnce) {
  for (const int64_t count : {0, 1, 15, 16, 17, 1000}) {
    std::vector<std::atomic<int>> times(static_cast<size_t>(count));
    parallel_files(count, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
    for (const auto& seen : times) EXPECT_EQ(seen, 1);
  }
}

TEST(ParallelFiles, ThrowsWhatTheFirstOfThemThrows) {
  const int threads = at::get_num_threads();
  for (const int some : {1, 2, 4}) {
    at::set_num_threads(some);
    for (int repetition = 0; repetition < 20; ++repetition) {
      EXPECT_EQ(message_of([] {
                  parallel_files(1000, [](int64_t i) {
                    if (i == 137 || i == 138 || i > 500) throw std::runtime_error(std::to_string(i));
                  });
                }),
                "137");
    }
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace bilevel::test
