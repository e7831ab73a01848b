#include "bilevel/core/schedule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "tests/messages.h"

namespace bilevel {
namespace {

using test::message;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Schedule, constant_and_inverse_sqrt) {
  const Schedule constant;
  const Schedule root{ScheduleKind::inverse_sqrt, 0, 0};
  for (const int64_t step : {0, 1, 3, 99, 1000000}) {
    EXPECT_EQ(constant.factor(step), 1);
    EXPECT_DOUBLE_EQ(root.factor(step), 1 / std::sqrt(static_cast<double>(step + 1)));
  }
  EXPECT_DOUBLE_EQ(root.factor(3), 0.5);
  EXPECT_DOUBLE_EQ(root.factor(99), 0.1);
}

TEST(Schedule, cosine_falls_from_one_to_its_end_and_stays) {
  const Schedule cosine{ScheduleKind::cosine, 12, 0.1};
  EXPECT_DOUBLE_EQ(cosine.factor(0), 1);
  EXPECT_DOUBLE_EQ(cosine.factor(3), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2);  // an eighth of a turn
  EXPECT_DOUBLE_EQ(cosine.factor(4), 0.1 + 0.9 * 0.75);                      // a sixth
  EXPECT_DOUBLE_EQ(cosine.factor(6), 0.55);
  EXPECT_DOUBLE_EQ(cosine.factor(12), 0.1);
  EXPECT_DOUBLE_EQ(cosine.factor(1000), 0.1);
}

TEST(Schedule, linear_falls_by_the_same_amount_each_step) {
  const Schedule linear{ScheduleKind::linear, 4, 0.2};
  const double expected[] = {1, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2};
  for (int64_t step = 0; step < 7; ++step) EXPECT_NEAR(linear.factor(step), expected[step], 1e-15);
  EXPECT_EQ((Schedule{ScheduleKind::linear, 1, 0}).factor(1), 0);
}

TEST(Schedule, names_go_both_ways_and_an_unknown_one_lists_the_choices) {
  for (const char* name : {"constant", "inverse-sqrt", "cosine", "linear"}) {
    EXPECT_EQ(schedule_kind_name(parse_schedule_kind(name)), name);
  }
  EXPECT_EQ(parse_schedule_kind("inverse-sqrt"), ScheduleKind::inverse_sqrt);
  EXPECT_EQ(parse_schedule_kind("linear"), ScheduleKind::linear);
  EXPECT_THAT(message([] { parse_schedule_kind("cosin"); }),
              AllOf(HasSubstr("'cosin'"), HasSubstr("constant, inverse-sqrt, cosine, linear")));
}

TEST(Schedule, misuse_names_the_option_its_value_and_the_bound) {
  EXPECT_THAT(message([] {
                Schedule{ScheduleKind::cosine, 0, 0}.validate();
              }),
              AllOf(HasSubstr("total_steps = 0"), HasSubstr("at least 1"), HasSubstr("cosine")));
  EXPECT_THAT(message([] {
                (void)Schedule{ScheduleKind::linear, -5, 0}.factor(1);
              }),
              HasSubstr("total_steps = -5"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double fraction : {-0.1, 1.5, nan}) {
    EXPECT_THAT(message([=] {
                  Schedule{ScheduleKind::linear, 5, fraction}.validate();
                }),
                AllOf(HasSubstr("final_fraction = "), HasSubstr("0 to 1")));
  }
  EXPECT_THAT(message([] { (void)Schedule().factor(-1); }), HasSubstr("step = -1"));
  EXPECT_NO_THROW((Schedule{ScheduleKind::constant, 0, 0}.validate()));
}

}  // namespace
}  // namespace bilevel
