// What runs decide, and what they do not.
#include "reproduce/verdict.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "reproduce/runs.h"

namespace bilevel::test {
namespace {

using reproduce::Ahead;
using reproduce::ahead_of_all;
using reproduce::Side;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double bad = std::numeric_limits<double>::quiet_NaN();

Json judged(const Side& ours, const std::vector<Side>& others, Ahead ahead = Ahead::lower) {
  return ahead_of_all("ours is first", "losses", ahead, ours, others);
}

TEST(Verdict, OneRunEachIsAheadOrNot) {
  EXPECT_EQ(judged({"A", {1}}, {{"B", {2}}, {"C", {3}}}).at("holds"), true);
  EXPECT_EQ(judged({"A", {1}}, {{"B", {2}}, {"C", {0.5}}}).at("holds"), false);
  EXPECT_EQ(judged({"A", {1}}, {{"B", {1}}}).at("holds"), false);
  EXPECT_EQ(judged({"A", {1}}, {{"B", {2}}}, Ahead::higher).at("holds"), false);
}

TEST(Verdict, ARunThatEndedBadlyIsNotBeaten) {
  const Json open = judged({"A", {1}}, {{"B", {2}}, {"C", {bad}}});
  EXPECT_TRUE(open.at("holds").is_null());
  EXPECT_THAT(open.at("why").get<std::string>(),
              AllOf(HasSubstr("A 1.000"), HasSubstr("B 2.000"), HasSubstr("C (ended badly)")));
  // Another one refutes the claim whatever became of it.
  EXPECT_EQ(judged({"A", {1}}, {{"B", {0.5}}, {"C", {bad}}}).at("holds"), false);
  EXPECT_TRUE(judged({"A", {bad}}, {{"B", {0.5}}}).at("holds").is_null());
}

TEST(Verdict, MeansOverUnequalSeedsAreNotCompared) {
  const Json open = judged({"A", {1, 1.1, 0.9}}, {{"B", {2, bad, 2.2}}});
  EXPECT_TRUE(open.at("holds").is_null());
  EXPECT_THAT(open.at("why").get<std::string>(), HasSubstr("1 of 3 runs ended badly"));
  EXPECT_TRUE(judged({"A", {1, 1.1, 0.9}}, {{"B", {2, 2.1}}}).at("holds").is_null());
}

TEST(Verdict, SeedsDecideBeyondTwoStandardErrors) {
  EXPECT_EQ(judged({"A", {1, 1.1, 0.9}}, {{"B", {2, 2.1, 2.2}}}).at("holds"), true);
  EXPECT_EQ(judged({"A", {2, 2.1, 2.2}}, {{"B", {1, 1.1, 0.9}}}).at("holds"), false);
  const Json open = judged({"A", {1, 1.1, 0.9}}, {{"B", {1.1, 0.9, 1.1}}});
  EXPECT_TRUE(open.at("holds").is_null());
  EXPECT_THAT(open.at("why").get<std::string>(), HasSubstr("two standard errors"));
}

// ---- a rate that is tried ----

SolveSummary ended(double loss, StopReason reason = StopReason::iterations) {
  SolveSummary summary;
  summary.reason = reason;
  summary.records.emplace_back().outer_loss = loss;
  return summary;
}

TEST(RateOfLowestLoss, LeavesOutARateThatFails) {
  std::string tried;
  const auto trial = [](double rate) {
    return rate > 0.5 ? ended(0.1, StopReason::not_finite) : ended(rate == 0.3 ? 0.4 : 0.5);
  };
  EXPECT_EQ(reproduce::rate_of_lowest_loss({0.1, 0.3, 1}, trial, tried), 0.3);
  EXPECT_EQ(tried, "0.1 0.5000, 0.3 0.4000, 1 failed in iteration 1");
}

TEST(RateOfLowestLoss, SaysWhereEveryRateFails) {
  std::string tried;
  const auto trial = [](double) { return ended(bad, StopReason::failed); };
  EXPECT_THAT(
      [&] {
        reproduce::rate_of_lowest_loss({0.1, 1}, trial, tried);
      },
      ThrowsMessage<std::runtime_error>(AllOf(HasSubstr("every one failed"), HasSubstr("0.1 failed"))));
}

}  // namespace
}  // namespace bilevel::test
