// Every estimator and every algorithm has its own options with a field table, from which it can be made by
// name: to the same bits as from settings that hold the options of all.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/fields/fields.h"
#include "bilevel/problems/registry.h"

namespace bilevel::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

AlgorithmSettings other_settings() {
  AlgorithmSettings s;
  s.inner.steps = 3;
  s.inner.rate = 0.02;
  s.inner.momentum = 0.4;
  s.inner.optimizer = "nesterov";
  s.inner.clip_norm = 2;
  s.outer.rate = 0.03;
  s.outer.momentum = 0.3;
  s.outer.schedule.kind = ScheduleKind::inverse_sqrt;
  s.hypergradient.terms = 4;
  s.hypergradient.truncate = 2;
  s.hypergradient.curvature = {.kind = "gauss-newton", .damping = 0.7, .difference_cross = true};
  s.linear_rate = 0.015;
  s.linear_schedule.kind = ScheduleKind::power;
  s.method = "fixed-point";
  s.growth = 2;
  s.strong_convexity = 1;
  s.hessian_batch = 6;
  s.momentum_decay = 0.6;
  s.averaging = 0.4;
  s.period = 2;
  s.large_batch = 9;
  s.penalty = 7;
  s.penalty_growth = 0.4;
  s.joint_rate = 0.02;
  s.barrier = 0.8;
  return s;
}

// The fields of `own` with the values that they have in the settings.
template <typename Settings>
NamedWords same_fields(const OwnOptions& own, Settings settings) {
  NamedWords given;
  for (const Field& field : Settings::fields().rows()) {
    if (own.has(field.name)) given.emplace_back(field.name, field.words(field.member(&settings)));
  }
  return given;
}

std::vector<Tensor> two_steps(const Algorithm& algorithm) {
  static const NamedProblem named = make_problem("mlp");
  const Problem& problem = *named.problem;
  Oracle oracle(problem);
  Streams streams(0, problem.inner_samples(), problem.outer_samples(), {.inner_batch = 8, .outer_batch = 8});
  AlgorithmState state = algorithm.init(oracle, problem.initial_outer(1), problem.initial_inner(2));
  algorithm.step(oracle, state, streams);
  const Tensor direction = algorithm.step(oracle, state, streams).direction;
  return {state.x, state.inner.w, direction};
}

TEST(OwnOptions, OfAnAlgorithmGiveTheSameBitsAsTheSettingsOfAll) {
  const AlgorithmSettings settings = other_settings();
  for (const AlgorithmRow& row : algorithm_rows()) {
    const NamedWords given = same_fields(row.options, settings);
    ASSERT_GE(given.size(), 4U) << row.name;
    const std::vector<Tensor> own = two_steps(*row.make_with(given)), all = two_steps(*row.make(settings));
    for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(own[i].equal(all[i])) << row.name << " " << i;
  }
}

TEST(OwnOptions, OfAnEstimatorGiveTheSameBitsAsTheSettingsOfAll) {
  const NamedProblem named = make_problem("mlp");
  Oracle oracle(*named.problem);
  EstimatorSettings settings = other_settings().hypergradient;
  settings.linear_rate = 0.03;
  settings.relative_tolerance = 0.1;
  settings.seed = 3;
  settings.byte_budget = 20'000;
  const Tensor x = named.problem->initial_outer(1), w = named.problem->initial_inner(2);
  for (const EstimatorRow& row : estimator_rows()) {
    InnerLoop loop;
    loop.options = {.steps = 5, .rate = 0.05};
    for (int64_t t = 0; t < 5; ++t) loop.keep.push_back(t);
    Trajectory trajectory = run_inner(oracle, x, w, loop);
    const auto own = row.make_with(same_fields(row.options, settings)), all = row.make(settings);
    EXPECT_TRUE(own->estimate(oracle, {.x = x, .inner = trajectory})
                    .value.equal(all->estimate(oracle, {.x = x, .inner = trajectory}).value))
        << row.name;
  }
}

TEST(OwnOptions, HaveDefaultsWithinTheirBoundsAndHelp) {
  const auto walk = [](const std::string& name, const OwnOptions& own) {
    for (const Field& field : own.fields()) {
      EXPECT_NO_THROW(field.require(own.default_words(field))) << name << " " << field.name;
      EXPECT_FALSE(field.help.empty()) << name << " " << field.name;
      const auto same = std::count_if(own.fields().begin(), own.fields().end(),
                                      [&](const Field& other) { return other.name == field.name; });
      EXPECT_EQ(same, 1) << name << " " << field.name;
    }
  };
  for (const EstimatorRow& row : estimator_rows()) walk(row.name, row.options);
  for (const AlgorithmRow& row : algorithm_rows()) walk(row.name, row.options);
}

std::string refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(OwnOptions, RefuseWhatIsNotTheirsOrOutOfBounds) {
  EXPECT_EQ(refusal([] { make_algorithm_with("soba", {{"penalty", {"3"}}}); }), "option penalty is unknown");
  EXPECT_EQ(refusal([] {
              make_algorithm_with("ma-soba", {{"averaging", {"2"}}});
            }),
            "averaging = 2: must be above 0 and at most 1");
  EXPECT_EQ(refusal([] {
              make_estimator_with("cg", {{"curvature", {"fisher"}}});
            }),
            "curvature = fisher: choose from hessian, gauss-newton");
  EXPECT_EQ(refusal([] { make_estimator_with("reverse", {{"terms", {"3"}}}); }), "option terms is unknown");
  EXPECT_THAT(refusal([] { make_estimator_with("newton", {}); }), HasSubstr("method 'newton' is unknown"));
}

TEST(OwnOptions, AreSeenThroughTheirTable) {
  const OwnOptions& own = find_estimator("neumann").options;
  std::vector<std::string> names;
  for (const Field& field : own.fields()) names.push_back(field.name);
  EXPECT_THAT(names, ElementsAre("terms", "linear_rate", "curvature", "damping", "difference_hessian",
                                 "difference_cross", "difference_step"));
  EXPECT_THAT(own.default_words(find_field(own.fields(), "terms")), ElementsAre("10"));
  EXPECT_EQ(find_field(own.fields(), "terms").type, FieldType::whole);
  EXPECT_TRUE(find_field(own.fields(), "damping").range.holds(0));
  EXPECT_FALSE(find_field(own.fields(), "damping").range.holds(-1));
}

}  // namespace
}  // namespace bilevel::test
