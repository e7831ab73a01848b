#pragma once
// Ranks as threads of the test: a group each, which meet in a folder, without a process that would take a
// second to start.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "bilevel/distributed/process_group.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {

using RankWork = std::function<void(const std::shared_ptr<ProcessGroup>& group)>;

// Runs `work` on every rank and returns what each threw, or null. `edit` may change where a rank is.
inline std::vector<std::exception_ptr> try_ranks(int size, const RankWork& work, double timeout = 60,
                                                 const std::function<void(RankPlace&)>& edit = {}) {
  const TemporaryFolder folder;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      try {
        RankPlace place{.rank = rank, .size = size, .local_rank = rank, .local_size = size};
        place.folder = folder / "meeting";
        if (edit) edit(place);
        work(ProcessGroup::join(place, {.timeout = timeout}));
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void run_ranks(int size, const RankWork& work, const std::function<void(RankPlace&)>& edit = {}) {
  for (const std::exception_ptr& error : try_ranks(size, work, 60, edit)) {
    if (error) std::rethrow_exception(error);
  }
}

#define BILEVEL_NEEDS_GLOO() \
  if (!has_backend("gloo")) GTEST_SKIP() << "built without Gloo (Debian: libgloo-dev)"

}  // namespace bilevel::test
