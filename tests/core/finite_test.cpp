#include "bilevel/core/finite.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace bilevel {
namespace {

TEST(AllFinite, FindsOneBadEntryAnywhere) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity()}) {
      for (const int64_t position : {0, 500, 999}) {
        Tensor t = at::ones({1000}, dtype);
        EXPECT_TRUE(all_finite(t));
        t[position] = bad;
        EXPECT_FALSE(all_finite(t));
      }
    }
  }
}

TEST(AllFinite, IsNotFooledByASumThatOverflowsOrCancels) {
  EXPECT_TRUE(all_finite(at::full({4}, 3e38, at::kFloat)));
  EXPECT_TRUE(all_finite(at::full({4}, 1.5e308, at::kDouble)));
  Tensor opposite = at::zeros({2}, at::kDouble);
  opposite[0] = std::numeric_limits<double>::infinity();
  opposite[1] = -std::numeric_limits<double>::infinity();
  EXPECT_FALSE(all_finite(opposite));
}

}  // namespace
}  // namespace bilevel
