// Grids of runs shared by ranks: the same results as one process's, in the same order.
#include "reproduce/dealt.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/problems/ridge.h"
#include "tests/distributed/ranks.h"
#include "tests/messages.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {
namespace {

using reproduce::dealt;
using reproduce::FinishedRuns;
using reproduce::ReproduceOptions;
using ::testing::HasSubstr;

TEST(DealtRuns, ComeBackWithTheirPointsAndRecords) {
  const Ridge ridge((RidgeOptions()));
  SolveOptions options{.iterations = 4, .records = 2, .keep_points = true};
  SolveSummary s = solve(ridge, *make_algorithm("aid-cg", {}), options);
  s.records[1].outer_loss = std::numeric_limits<double>::infinity();
  const auto bytes = Packed::to_cbor(packed(s));
  const SolveSummary back = unpacked(Packed::from_cbor(bytes));
  EXPECT_EQ(back.algorithm, s.algorithm);
  EXPECT_EQ(back.reason, s.reason);
  EXPECT_EQ(back.state.iteration, 4);
  EXPECT_TRUE(at::equal(back.state.x, s.state.x));
  EXPECT_TRUE(at::equal(back.inner_solution, s.inner_solution));
  EXPECT_EQ(back.counts.hessian, s.counts.hessian);
  EXPECT_EQ(back.statuses, s.statuses);
  ASSERT_EQ(back.records.size(), s.records.size());
  for (size_t i = 0; i < s.records.size(); ++i) {
    EXPECT_EQ(back.records[i].iteration, s.records[i].iteration);
    EXPECT_EQ(back.records[i].outer_loss, s.records[i].outer_loss);
    EXPECT_EQ(back.records[i].metrics, s.records[i].metrics);
    EXPECT_TRUE(at::equal(back.records[i].x, s.records[i].x));
    EXPECT_TRUE(at::equal(back.records[i].w, s.records[i].w));
  }
}

// A grid of numbers, of which one is no number; `made` counts the runs.
std::vector<double> dealt_numbers(const std::shared_ptr<FinishedRuns>& finished, size_t until,
                                  std::vector<size_t>& made) {
  ReproduceOptions options;
  options.finished = finished;
  return dealt(
      options, 4,
      [&](size_t i) {
        if (i == until) throw std::runtime_error("interrupted");
        made.push_back(i);
        return i == 1 ? std::numeric_limits<double>::quiet_NaN() : 0.1 * static_cast<double>(i);
      },
      [](double value) { return Packed(value); }, [](const Packed& p) { return p.get<double>(); });
}

TEST(DealtRuns, ThatHaveEndedAreNotMadeAgain) {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;
  const auto finished = [&](bool resumed) {
    return std::make_shared<FinishedRuns>(folder / "item", resumed,
                                          [&](const std::string& text) { warnings.push_back(text); });
  };
  std::vector<size_t> first, second, third, fourth;
  EXPECT_THROW(dealt_numbers(finished(false), 2, first), std::runtime_error);
  EXPECT_EQ(first, (std::vector<size_t>{0, 1}));
  const std::vector<double> all = dealt_numbers(finished(true), 9, second);
  EXPECT_EQ(second, (std::vector<size_t>{2, 3}));
  EXPECT_TRUE(std::isnan(all[1]));
  EXPECT_EQ(all[2], 0.2);
  EXPECT_EQ(all[3], 0.1 * 3);
  // Another grid of the same item has files of its own.
  const auto later = finished(true);
  later->next_grid();
  dealt_numbers(later, 9, third);
  EXPECT_EQ(third.size(), 4U);
  EXPECT_THAT(warnings, ::testing::IsEmpty());
  // A damaged file is a run to make again.
  std::filesystem::resize_file(folder / "item/finished/grid-0-run-3", 40);
  EXPECT_EQ(dealt_numbers(finished(true), 9, fourth)[3], 0.1 * 3);
  EXPECT_EQ(fourth, (std::vector<size_t>{3}));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("grid-0-run-3"));
}

TEST(DealtRuns, AreMadeByOneRankEachAndKnownToAll) {
  BILEVEL_NEEDS_GLOO();
  run_ranks(3, [](const auto& group) {
    ReproduceOptions options;
    options.group = group;
    std::vector<size_t> mine;
    const auto all = dealt(
        options, 7,
        [&](size_t i) {
          mine.push_back(i);
          return 10 * i;
        },
        [](size_t value) { return Packed(value); }, [](const Packed& p) { return p.get<size_t>(); });
    EXPECT_EQ(all, (std::vector<size_t>{0, 10, 20, 30, 40, 50, 60}));
    for (const size_t i : mine) EXPECT_EQ(i % 3, static_cast<size_t>(group->rank()));
  });
}

Json without_seconds(Json value) {
  if (value.is_object()) value.erase("seconds");
  if (value.is_structured()) {
    for (auto& part : value) part = without_seconds(part);
  }
  return value;
}

TEST(DealtRuns, AreTheSameOnRanksThatSeeDifferentOnesFinished) {
  BILEVEL_NEEDS_GLOO();
  const TemporaryFolder folder;
  std::vector<size_t> made;
  dealt_numbers(std::make_shared<FinishedRuns>(folder / "0", false, [](const std::string&) {}), 9, made);
  run_ranks(2, [&](const auto& group) {
    ReproduceOptions options;
    options.group = group;
    options.finished = std::make_shared<FinishedRuns>(folder / std::to_string(group->rank()), true,
                                                      [](const std::string&) {});
    size_t runs = 0;
    const auto all = dealt(
        options, 4, [&](size_t i) { return ++runs, static_cast<double>(10 * i); },
        [](double value) { return Packed(value); }, [](const Packed& p) { return p.get<double>(); });
    EXPECT_EQ(runs, 2U);
    EXPECT_EQ(all, (std::vector<double>{0, 10, 20, 30}));
  });
}

TEST(DealtRuns, MakeTheTableOfOneProcess) {
  BILEVEL_NEEDS_GLOO();
  const TemporaryFolder nothing;  // made-up images
  const reproduce::Item& item = reproduce::find_item("idarts:figure1");
  ReproduceOptions options;
  options.data_dir = nothing / "";
  options.epochs = 1;
  options.seeds = {0};
  options.tensors = doubles();
  options.progress = [](const std::string&) {};
  at::set_num_threads(1);
  const Json alone = item.run(options);
  run_ranks(2, [&](const auto& group) {
    ReproduceOptions own = options;
    own.group = group;
    own.validate(item);
    EXPECT_EQ(without_seconds(item.run(own)), without_seconds(alone));
  });
}

TEST(DealtRuns, AnItemWithoutAGridIsRefusedByName) {
  BILEVEL_NEEDS_GLOO();
  run_ranks(2, [](const auto& group) {
    ReproduceOptions options;
    options.group = group;
    EXPECT_THAT(message([&] { options.validate(reproduce::find_item("krmd:toy")); }),
                HasSubstr("krmd:toy is no grid of runs that 2 ranks could share: start one process; ranks "
                          "share krmd:table2, krmd:figure5, fsla:cleaning"));
  });
}

}  // namespace
}  // namespace bilevel::test
