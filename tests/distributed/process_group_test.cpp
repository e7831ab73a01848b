// Sums, words and failures of a group, with ranks as threads.
#include "bilevel/distributed/process_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bilevel/distributed/peer_process.h"
#include "bilevel/distributed/transport.h"
#include "bilevel/distributed/wait_for_cores.h"
#include "tests/distributed/ranks.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

std::string message_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "none";
}

TEST(ProcessGroup, sums_are_over_all_ranks_and_counted) {
  BILEVEL_NEEDS_GLOO();
  run_ranks(3, [](const auto& group) {
    const double mine = group->rank() + 1;
    Tensor a = at::full({4}, mine, doubles());
    group->sum_(a);
    EXPECT_TRUE(at::equal(a, at::full({4}, 6.0, doubles())));
    EXPECT_EQ(group->communication().calls, 1);
    EXPECT_EQ(group->communication().bytes, 32);

    Tensor b = at::full({2, 3}, mine, doubles()), c = at::full({}, 10 * mine, doubles());
    group->sum_({&b, &c});
    EXPECT_TRUE(at::equal(b, at::full({2, 3}, 6.0, doubles())));
    EXPECT_EQ(c.dim(), 0);
    EXPECT_EQ(c.item<double>(), 60);
    EXPECT_EQ(c.storage().nbytes(), 8U) << "a number keeps all that it was summed with";
    EXPECT_EQ(group->communication().calls, 2);
    EXPECT_EQ(group->communication().bytes, 32 + 56);
    EXPECT_GT(group->communication().seconds, 0);

    Tensor columns = at::full({2, 2}, mine, doubles()).t();
    group->sum_(columns);
    EXPECT_EQ(columns.sum().template item<double>(), 24);
  });
}

TEST(ProcessGroup, sums_have_the_same_bits_on_all_ranks) {
  BILEVEL_NEEDS_GLOO();
  std::vector<Tensor> sums(3);
  run_ranks(3, [&](const auto& group) {
    Tensor t = random_vector(1001, static_cast<uint64_t>(group->rank()));
    group->sum_(t);
    sums[static_cast<size_t>(group->rank())] = t;
  });
  EXPECT_TRUE(at::equal(sums[0], sums[1]));
  EXPECT_TRUE(at::equal(sums[0], sums[2]));
  EXPECT_LT(relative_error(sums[0], random_vector(1001, 0) + random_vector(1001, 1) + random_vector(1001, 2)),
            1e-15);
}

// Short ones go another way than long ones, and are filled up to a power of two.
TEST(ProcessGroup, sums_of_all_lengths_and_kinds_are_right_on_any_number_of_ranks) {
  BILEVEL_NEEDS_GLOO();
  for (const int size : {2, 3, 4, 5, 7}) {
    std::vector<std::vector<Tensor>> sums(static_cast<size_t>(size));
    run_ranks(size, [&](const auto& group) {
      for (const int turn : {0, 1, 2}) {  // what a length keeps from one sum must not come into the next
        for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong}) {
          for (const int64_t count : {0, 1, 2, 3, 5, 100, 1000, 8192, 8193, 40'000}) {
            Tensor t = at::arange(count, doubles()).add_(group->rank() + turn).to(type);
            group->sum_(t);
            const double of_ranks = size * (size - 1) / 2.0 + size * turn;
            EXPECT_TRUE(at::equal(t, (at::arange(count, doubles()) * size + of_ranks).to(type)))
                << count << " numbers of " << at::toString(type) << " on " << size << " ranks";
            Tensor drawn = random_vector(count, static_cast<uint64_t>(group->rank() + 10 * turn)).to(type);
            group->sum_(drawn);
            sums[static_cast<size_t>(group->rank())].push_back(drawn);
          }
        }
      }
      // Whole numbers are c10d's.
      EXPECT_EQ(group->communication().calls, 3 * 3 * 10 * 2);
      EXPECT_EQ(group->communication().direct, has_short_sums() ? 3 * 2 * 10 * 2 : 0);
    });
    for (const auto& of_rank : sums) {
      ASSERT_EQ(of_rank.size(), sums[0].size());
      for (size_t i = 0; i < of_rank.size(); ++i) EXPECT_TRUE(at::equal(of_rank[i], sums[0][i]));
    }
  }
}

// Between machines long sums are c10d's, and short ones are not: they come in turns.
TEST(ProcessGroup, sums_between_machines_are_right_too) {
  BILEVEL_NEEDS_GLOO();
  const char* before = std::getenv("GLOO_SOCKET_IFNAME");
  ::setenv("GLOO_SOCKET_IFNAME", "lo", 0);
  const auto errors = try_ranks(
      3,
      [](const auto& group) {
        for (const int64_t count : {10, 40'000, 8'192, 8'193, 1}) {
          Tensor t = at::arange(count, doubles()).add_(group->rank());
          group->sum_(t);
          EXPECT_TRUE(at::equal(t, at::arange(count, doubles()) * 3 + 3)) << count;
        }
        EXPECT_EQ(group->communication().direct, has_short_sums() ? 3 : 0);
      },
      60,
      [](RankPlace& place) {
        place.local_rank = 0;
        place.local_size = 1;
        place.one_machine = false;
      });
  if (before == nullptr) ::unsetenv("GLOO_SOCKET_IFNAME");
  for (const std::exception_ptr& error : errors) EXPECT_EQ(message_of(error), "none");
}

TEST(ProcessGroup, one_rank_needs_no_place_to_meet) {
  BILEVEL_NEEDS_GLOO();
  const auto group = ProcessGroup::join({}, {});
  Tensor a = random_vector(5, 1);
  const Tensor same = a.clone();
  group->sum_(a);
  EXPECT_TRUE(at::equal(a, same));
  EXPECT_EQ(group->communication().calls, 1);
  EXPECT_EQ(group->gather("alone"), std::vector<std::string>{"alone"});
  EXPECT_EQ(group->backend().substr(0, 4), "gloo");
}

TEST(ProcessGroup, nccl_sums_what_is_on_a_gpu) {
  if (!has_backend("nccl") || !at::hasCUDA()) GTEST_SKIP() << "no GPU, or built without NCCL";
  for (const char* backend : {"nccl", ""}) {
    const auto group = ProcessGroup::join({}, {.backend = backend, .timeout = 60});
    Tensor a = random_vector(1001, 1).to(at::kCUDA), b = a.narrow(0, 7, 30).clone();
    const Tensor first = a.clone(), second = b.clone();
    group->sum_({&a, &b});
    group->broadcast_(b);
    EXPECT_TRUE(at::equal(a, first));
    EXPECT_TRUE(at::equal(b, second));
    EXPECT_TRUE(group->any(true));
    EXPECT_EQ(group->communication().calls, 3);
  }
}

TEST(ProcessGroup, words_and_tensors_come_from_one_rank_to_all) {
  BILEVEL_NEEDS_GLOO();
  run_ranks(2, [](const auto& group) {
    EXPECT_EQ(group->gather(group->rank() == 0 ? "" : "one"), (std::vector<std::string>{"", "one"}));
    EXPECT_EQ(group->broadcast(group->rank() == 1 ? std::string("a\0b", 3) : "x", 1), std::string("a\0b", 3));
    Tensor t = at::full({3}, group->rank(), doubles());
    group->broadcast_(t, 1);
    EXPECT_TRUE(at::equal(t, at::ones({3}, doubles())));
    EXPECT_FALSE(group->any(false));
    EXPECT_TRUE(group->any(group->rank() == 1));
  });
}

TEST(ProcessGroup, a_rank_that_fails_is_named_with_its_cause) {
  BILEVEL_NEEDS_GLOO();
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = try_ranks(3, [](const auto& group) {
    Tensor t = at::ones({3}, doubles());
    group->sum_(t);
    if (group->rank() == 1) {
      EXPECT_TRUE(group->fail("the disk is full", 3));
      return;  // its connections close
    }
    group->sum_(t);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_FALSE(errors[1]);
  for (const size_t rank : {0U, 2U}) {
    ASSERT_TRUE(errors[rank]);
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const RankFailure& failure) {
      EXPECT_EQ(failure.facts().rank, 1);
      EXPECT_EQ(failure.facts().exit_code, 3);
      EXPECT_EQ(failure.facts().process, ::getpid());
      EXPECT_FALSE(failure.is_first());
      EXPECT_EQ(std::string(failure.what()), fmt::format("rank 1 of 3 (process {} on {}): the disk is full",
                                                         ::getpid(), this_process().host));
    }
  }
}

TEST(ProcessGroup, only_the_first_failure_counts) {
  BILEVEL_NEEDS_GLOO();
  std::vector<int> first(3);
  std::barrier all_have_joined(3);  // who is still joining would be told of the failure, and rightly so
  run_ranks(3, [&](const auto& group) {
    all_have_joined.arrive_and_wait();
    first[static_cast<size_t>(group->rank())] = group->fail("all of them at once", 2) ? 1 : 0;
  });
  EXPECT_EQ(first[0] + first[1] + first[2], 1);
}

// On a busy machine one rank is done before another has noticed that it is connected.
TEST(ProcessGroup, a_rank_may_leave_at_once) {
  BILEVEL_NEEDS_GLOO();
  std::vector<std::jthread> load;
  for (int i = 0; i < 8; ++i) {
    load.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
      }
    });
  }
  for (int i = 0; i < 60; ++i) {
    run_ranks(2, [](const auto&) {});
  }
}

TEST(ProcessGroup, a_rank_that_hangs_is_named) {
  BILEVEL_NEEDS_GLOO();
  const auto errors = try_ranks(
      2,
      [](const auto& group) {
        if (group->rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(9000));
          return;
        }
        Tensor t = at::ones({3}, doubles());
        group->sum_(t);
      },
      4);
  EXPECT_NE(message_of(errors[0]).find("rank 1 of 2"), std::string::npos) << message_of(errors[0]);
  EXPECT_NE(message_of(errors[0]).find("has not answered for 4 s"), std::string::npos)
      << message_of(errors[0]);
}

TEST(ProcessGroup, a_rank_that_does_not_come_is_named) {
  BILEVEL_NEEDS_GLOO();
  const TemporaryFolder folder;
  RankPlace place{.rank = 0, .size = 2};
  place.folder = folder / "meeting";
  std::string message;
  try {
    (void)ProcessGroup::join(place, {.timeout = 0.2});
  } catch (const RankFailure& failure) {
    message = failure.what();
  }
  EXPECT_EQ(message, "rank 1 of 2: did not come within 0.2 s: was it started, and with the same variables?");
}

TEST(ProcessGroup, the_folder_where_ranks_meet_is_private_and_goes_away) {
  BILEVEL_NEEDS_GLOO();
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "open");
  std::filesystem::permissions(folder / "open", std::filesystem::perms::all);
  RankPlace place{.rank = 0, .size = 1};
  place.folder = folder / "open";
  EXPECT_THROW((void)ProcessGroup::join(place, {}), std::runtime_error);
  place.folder = folder / "private";
  {
    const auto group = ProcessGroup::join(place, {});
    struct ::stat status {};
    ASSERT_EQ(::stat(place.folder.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U);
  }
  EXPECT_FALSE(std::filesystem::exists(place.folder));
}

// Two ranks on one GPU are refused by NCCL, whatever the number of GPUs; a rank without one has an empty
// word.
TEST(ProcessGroup, nccl_is_for_ranks_of_which_each_has_a_gpu_of_its_own) {
  EXPECT_TRUE(each_has_its_own_gpu({"a 0000:01:00.0"}));
  EXPECT_TRUE(each_has_its_own_gpu({"a 0000:01:00.0", "a 0000:02:00.0", "b 0000:01:00.0"}));
  EXPECT_FALSE(each_has_its_own_gpu({"a 0000:01:00.0", "a 0000:01:00.0"}));
  EXPECT_FALSE(each_has_its_own_gpu({"a 0000:01:00.0", ""}));
  EXPECT_FALSE(each_has_its_own_gpu({""}));
}

TEST(ProcessGroup, ranks_that_share_a_gpu_send_by_gloo) {
  if (!can_use_nccl() || !at::hasCUDA()) GTEST_SKIP() << "no GPU, or built without NCCL";
  run_ranks(2, [](const auto& group) {
    EXPECT_EQ(group->backend(), "gloo+nccl");
    Tensor t = at::full({3}, group->rank() + 1, doubles().device(c10::Device(c10::kCUDA, 0)));
    group->sum_(t);
    EXPECT_EQ(t.sum().template item<double>(), 9);
  });
}

// Files as the kernel writes them: nanoseconds run, nanoseconds waited, and how often.
TEST(WaitForCores, is_what_the_kernel_says_or_not_known) {
  const TemporaryFolder folder;
  const auto write = [&](const char* text) { std::ofstream(folder / "schedstat") << text; };
  const auto a_while = [] { std::this_thread::sleep_for(std::chrono::milliseconds(25)); };
  write("5000000 1000000 7\n");
  WaitForCores wait(folder / "schedstat");
  EXPECT_LT(wait.part(), 0) << "there is nothing to compare with";
  EXPECT_LT(wait.part(), 0) << "too early";
  a_while();
  EXPECT_EQ(wait.part(), 0);
  write("6000000 3000000 9\n");
  a_while();
  const double part = wait.part();  // 2 ms of at least 25
  EXPECT_GT(part, 0);
  EXPECT_LE(part, 2.0 / 25);
  write("0 0 0\n");  // a kernel that counts nothing
  a_while();
  EXPECT_LT(wait.part(), 0);
  WaitForCores nowhere(folder / "nothing");
  EXPECT_LT(nowhere.part(), 0);
}

TEST(PeerProcess, is_seen_to_run_to_be_stopped_and_to_be_gone) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  PeerProcess peer = this_process();
  peer.process = child;
  EXPECT_EQ(state_of(peer), ProcessState::runs);
  ::kill(child, SIGSTOP);
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  EXPECT_EQ(state_of(peer), ProcessState::stopped);
  ::kill(child, SIGKILL);
  for (int i = 0; i < 5000 && state_of(peer) != ProcessState::gone; ++i) ::usleep(1000);
  EXPECT_EQ(state_of(peer), ProcessState::gone);  // nobody has waited for it yet
  ::waitpid(child, &status, 0);
  EXPECT_EQ(state_of(peer), ProcessState::gone);
  EXPECT_EQ(state_of(read_process(this_process().text())), ProcessState::runs);
  peer.system = "another";
  EXPECT_EQ(state_of(peer), ProcessState::unknown);
}

}  // namespace
}  // namespace bilevel::test
