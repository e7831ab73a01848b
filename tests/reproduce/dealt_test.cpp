// Grids of runs shared by ranks: the same results as one process's, in the same order.
#include "reproduce/dealt.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>
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
