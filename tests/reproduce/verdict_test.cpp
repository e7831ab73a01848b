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
using reproduce::RunAxis;
using reproduce::Side;
using reproduce::TimedResult;
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

TEST(Verdict, AnOrderHoldsWhereEveryStepOfItDoes) {
  const auto order = [](const std::vector<Side>& best_first) {
    return reproduce::in_order("A, B, C", "accuracies", Ahead::higher, best_first, 1);
  };
  const Side a{"A", {93, 94, 95}}, b{"B", {90, 91, 92}}, near_b{"C", {90.5, 90, 92}}, c{"C", {80, 81, 83}};
  const Json holds = order({a, b, c});
  EXPECT_EQ(holds.at("holds"), true);
  EXPECT_EQ(holds.at("why"), "accuracies: A 94.0 ± 1.0, B 91.0 ± 1.0, C 81.3 ± 1.5");
  EXPECT_EQ(order({b, a, c}).at("holds"), false);
  const Json open = order({a, b, near_b});
  EXPECT_TRUE(open.at("holds").is_null());
  EXPECT_THAT(open.at("why").get<std::string>(),
              HasSubstr("; B and C are 0.2 apart, two standard errors are 0.9"));
}

// ---- runs side by side ----

// A loss that falls along a straight line, a second for every ten iterations.
TimedResult timed(const std::string& label, double first, double last, int64_t iterations,
                  StopReason reason = StopReason::iterations) {
  TimedResult result;
  result.label = label;
  result.summary.reason = reason;
  result.summary.state.iteration = iterations;
  for (const double part : {0.0, 1.0}) {
    SolveRecord& record = result.summary.records.emplace_back();
    record.iteration = static_cast<int64_t>(part * static_cast<double>(iterations));
    record.seconds = static_cast<double>(record.iteration) / 10;
    record.outer_loss = first + part * (last - first);
  }
  return result;
}
bool anybody(const TimedResult& /*result*/) { return true; }

TEST(AheadAlong, ComparesWhereBothAre) {
  // At iteration 1000, the end of the second, the first has 1.5; at its own end it would be ahead.
  const TimedResult ours = timed("A", 2, 1, 2000), slow = timed("B", 2, 1.4, 1000, StopReason::seconds);
  const Json by_time = reproduce::ahead_along("A is first", RunAxis::seconds, 2000, {ours, slow}, anybody);
  EXPECT_EQ(by_time.at("holds"), false);
  EXPECT_EQ(by_time.at("why"), "validation losses after 100 seconds: A 1.500, B 1.400");
  const Json by_iterations =
      reproduce::ahead_along("A is first", RunAxis::iterations, 2000, {ours, slow}, anybody);
  EXPECT_TRUE(by_iterations.at("holds").is_null());
  EXPECT_THAT(by_iterations.at("why").get<std::string>(),
              HasSubstr("B was cut short after 1000 of 2000 iterations"));
}

TEST(AheadAlong, IsUndecidedWhereTheFirstIsShortOrOneEndedBadly) {
  const TimedResult whole = timed("B", 2, 1.5, 2000);
  EXPECT_EQ(reproduce::ahead_along("", RunAxis::seconds, 2000, {timed("A", 2, 1, 2000), whole}, anybody)
                .at("holds"),
            true);
  const Json cut = reproduce::ahead_along("", RunAxis::seconds, 2000,
                                          {timed("A", 2, 1, 100, StopReason::seconds), whole}, anybody);
  EXPECT_TRUE(cut.at("holds").is_null());
  const TimedResult diverged = timed("C", 2, 9, 19, StopReason::failed);
  const Json bad_rival =
      reproduce::ahead_along("", RunAxis::seconds, 2000, {timed("A", 2, 1, 2000), whole, diverged}, anybody);
  EXPECT_TRUE(bad_rival.at("holds").is_null());
  EXPECT_THAT(bad_rival.at("why").get<std::string>(), HasSubstr("C (ended badly)"));
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
