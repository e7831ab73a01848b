#include "bilevel/meta/sinusoids.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/messages.h"
#include "tests/meta/same_tasks.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using meta::Part;
using meta::Sinusoids;
using meta::SinusoidsOptions;
using meta::TaskShape;
using ::testing::HasSubstr;

TEST(Sinusoids, are_a_pure_function_of_seed_part_and_number) {
  expect_replayable([](uint64_t seed) {
    return std::make_unique<Sinusoids>(TaskShape{5, 10, 10}, SinusoidsOptions{}, seed, doubles());
  });
}

TEST(Sinusoids, have_the_asked_shapes) {
  const TaskShape shape{5, 10, 7};
  const Sinusoids source(shape, {}, 0, doubles());
  expect_shapes(source, shape, doubles());
  EXPECT_TRUE(source.regression());
  EXPECT_EQ(source.classes(Part::train), 0);
}

// Least squares on sin u and cos u gives a cos p and a sin p of each task: the targets lie on one curve, the
// same for both sets, with amplitude and phase in MAML's ranges.
TEST(Sinusoids, are_sinusoids_of_mamls_ranges) {
  const Sinusoids source({5, 10, 10}, {}, 2, doubles());
  double smallest = 10, largest = 0;
  for (const Part part : {Part::train, Part::valid, Part::test}) {
    const meta::TaskBatch batch = source.tasks(part, 0, 60);
    EXPECT_LE(batch.train_inputs.abs().max().item<double>(), 5);
    EXPECT_GT(batch.train_inputs.max().item<double>(), 4.5);
    EXPECT_LT(batch.train_inputs.min().item<double>(), -4.5);
    for (int64_t task = 0; task < 60; ++task) {
      const Tensor u = at::cat({batch.train_inputs[task], batch.valid_inputs[task]});
      const Tensor y = at::cat({batch.train_targets[task], batch.valid_targets[task]});
      const Tensor basis = at::cat({u.sin(), u.cos()}, 1);
      const Tensor solution = at::linalg_solve(basis.t().matmul(basis), basis.t().matmul(y));
      EXPECT_LT((basis.matmul(solution) - y).abs().max().item<double>(), 1e-11);
      const double c = solution[0].item<double>(), s = solution[1].item<double>();
      const double amplitude = std::hypot(c, s);
      EXPECT_GE(s, -1e-12) << "the phase lies in [0, pi]";
      smallest = std::min(smallest, amplitude);
      largest = std::max(largest, amplitude);
    }
  }
  EXPECT_GE(smallest, 0.1);
  EXPECT_LT(smallest, 0.5);
  EXPECT_LE(largest, 5);
  EXPECT_GT(largest, 4.5);
}

TEST(Sinusoids, refuse_absurd_options) {
  EXPECT_THAT(message([] { SinusoidsOptions{.largest_amplitude = 0.01}.validate(); }),
              HasSubstr("largest_amplitude = 0.01: must be finite and at least 0.1"));
  EXPECT_THAT(message([] { SinusoidsOptions{.reach = 0}.validate(); }), HasSubstr("reach = 0: must be"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message([&] { SinusoidsOptions{.noise = nan}.validate(); }), HasSubstr("noise = nan"));
}

}  // namespace
}  // namespace bilevel::test
