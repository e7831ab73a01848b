// What holds of every estimator: misuse is named, a NaN is a status and never a zero, repeated runs give the
// same bits, float agrees with double, warm starts begin where they should.
#include "bilevel/hypergradients/estimator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "bilevel/core/errors.h"
#include "bilevel/problems/learned_rate.h"
#include "bilevel/problems/registry.h"
#include "bilevel/problems/ridge.h"
#include "bilevel/problems/toy.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

InnerOptions descent(int64_t steps, double rate = 0.3) {
  InnerOptions options;
  options.steps = steps;
  options.rate = rate;
  return options;
}

class EveryEstimator : public ::testing::TestWithParam<std::string> {
 protected:
  const Ridge ridge;
  Oracle oracle{ridge};
  const Tensor x = ridge.initial_outer(0);
  const Trajectory inner = run_all_kept(oracle, x, ridge.initial_inner(0), descent(12));
  EstimatorSettings settings;
};

TEST_P(EveryEstimator, has_the_name_of_its_row_and_a_summary) {
  EXPECT_EQ(make_estimator(GetParam(), {})->name(), GetParam());
  EXPECT_FALSE(find_estimator(GetParam()).summary.empty());
}

TEST_P(EveryEstimator, repeated_runs_give_the_same_bits) {
  const NamedProblem mlp = make_problem("mlp");
  settings.curvature.damping = 3;
  const auto run = [&] {
    Oracle fresh(*mlp.problem);
    return hypergradient_at(fresh, mlp.problem->initial_outer(0), mlp.problem->initial_inner(0), descent(8),
                            *make_estimator(GetParam(), settings))
        .hypergradient;
  };
  const Hypergradient first = run(), second = run();
  EXPECT_TRUE(at::equal(first.value, second.value));
  EXPECT_EQ(first.counts.hessian, second.counts.hessian);
  EXPECT_EQ(first.relative_residual, second.relative_residual);
}

TEST_P(EveryEstimator, says_what_it_cost_and_where_it_stood) {
  const OracleCounts before = oracle.counts();
  const Hypergradient found = estimate_along(GetParam(), settings, oracle, x, inner);
  EXPECT_EQ(found.counts.hessian, (oracle.counts() - before).hessian);
  EXPECT_EQ(found.counts.cross, (oracle.counts() - before).cross);
  EXPECT_GT(found.seconds, 0);
  EXPECT_GE(found.seconds, found.counts.seconds);
  EXPECT_DOUBLE_EQ(found.inner_gradient_norm, length(ridge.inner_gradient(inner.final.w, x, {})));
  EXPECT_NEAR(number(found.outer_loss), number(ridge.outer_loss(inner.final.w, x, {})), 1e-14);
  EXPECT_FALSE(found.value.requires_grad());
  EXPECT_TRUE(found.value.sizes().equals(x.sizes()));
}

TEST_P(EveryEstimator, float_agrees_with_double_to_float_accuracy) {
  for (const char* name : {"ridge", "mlp", "hyper-cleaning", "learned-rate"}) {
    settings.curvature.damping =
        3;  // condition numbers near one: what is left is the estimator's own rounding
    settings.terms = 5;
    const auto value = [&](const at::TensorOptions& tensors) {
      const NamedProblem named = make_problem(name, {.tensors = tensors});
      Oracle fresh(*named.problem);
      return hypergradient_at(fresh, named.problem->initial_outer(0), named.problem->initial_inner(0),
                              descent(8, named.inner_rate), *make_estimator(GetParam(), settings))
          .hypergradient.value;
    };
    const Tensor single = value(floats());
    EXPECT_EQ(single.scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(single.to(at::kDouble), value(doubles())), 2e-5) << name;
  }
}

TEST_P(EveryEstimator, refuses_a_loop_that_has_not_run_and_points_that_do_not_fit) {
  EXPECT_THAT([&] { estimate_along(GetParam(), settings, oracle, x, {}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("the inner loop has not been run")));
  EXPECT_THROW(estimate_along(GetParam(), settings, oracle, Tensor(), inner), std::invalid_argument);
  EXPECT_THROW(estimate_along(GetParam(), settings, oracle, x.to(at::kFloat), inner), std::invalid_argument);
  EXPECT_THROW(estimate_along(GetParam(), settings, oracle, x.reshape({4, 5}), inner), std::invalid_argument);
  EXPECT_THROW(estimate_along(GetParam(), settings, oracle, x, inner, {at::empty({0}, at::kLong)}),
               std::invalid_argument);
  const auto estimator = make_estimator(GetParam(), settings);
  Trajectory copy = inner;
  EXPECT_THAT(
      [&] {
        estimator->estimate(oracle, {.x = x, .inner = copy, .warm_start = vec({1, 2})});
      },
      ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("warm_start has 2"), HasSubstr("w has 20"))));
}

TEST_P(EveryEstimator, names_the_state_that_was_not_kept) {
  InnerLoop run;
  run.options = descent(12);
  const Trajectory bare = run_inner(oracle, x, ridge.initial_inner(0), run);
  if (make_estimator(GetParam(), settings)->keeps(12, 160).empty()) {
    const Tensor value = estimate_along(GetParam(), settings, oracle, x, bare).value;
    EXPECT_TRUE(at::equal(value, estimate_along(GetParam(), settings, oracle, x, inner).value));
  } else {
    EXPECT_THAT([&] { estimate_along(GetParam(), settings, oracle, x, bare); },
                ThrowsMessage<std::invalid_argument>(
                    AllOf(HasSubstr(GetParam() + " needs the inner state"), HasSubstr("did not keep"))));
  }
}

TEST_P(EveryEstimator, takes_no_inner_steps_at_all) {
  const Toy toy(doubles(), true);
  Oracle other(toy);
  const Tensor at_x = toy.initial_outer(0), start = toy.initial_inner(0);
  const auto found = hypergradient_at(other, at_x, start, descent(0), *make_estimator(GetParam(), settings));
  const Dense d = dense_at(toy, start, at_x);
  Tensor expected = d.direct;  // of no steps the derivative is that of f alone
  if (GetParam() == "exact" || GetParam() == "cg" || GetParam() == "minres" || GetParam() == "nystrom") {
    expected = d.direct - d.cross.mv(solve(d.hessian, d.p));
  } else if (GetParam() == "neumann" || GetParam() == "fixed-point") {
    expected = d.direct - d.cross.mv(dense_neumann(d.hessian, d.p, 0.3, GetParam() == "neumann" ? 10 : 9));
  } else if (GetParam() == "t1t2") {
    expected = d.direct - d.cross.mv(d.p);
  }
  EXPECT_LT(relative_error(found.hypergradient.value, expected), 1e-13);
}

// A user's closed form that fails: NaN from one product, where everything before was finite.
class NanProducts : public ForwardingProblem {
 public:
  NanProducts(const Problem& base, bool in_hessian) : ForwardingProblem(base), in_hessian_(in_hessian) {}
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x, const Batch& b) const override {
    return std::make_unique<Spoiled>(base_.linearize(w, x, b), in_hessian_);
  }

 private:
  struct Spoiled : Linearization {
    Spoiled(std::unique_ptr<Linearization> linear, bool hessian_is_bad)
        : base(std::move(linear)), bad(hessian_is_bad) {}
    Tensor gradient() override { return base->gradient(); }
    Tensor hessian(const Tensor& v) override { return base->hessian(v) * (bad ? nan : 1); }
    Tensor cross(const Tensor& v) override { return base->cross(v) * (bad ? 1 : nan); }
    Tensor cross_transposed(const Tensor& u) override { return base->cross_transposed(u) * (bad ? 1 : nan); }
    std::unique_ptr<Linearization> base;
    bool bad;
  };
  bool in_hessian_;
};

TEST_P(EveryEstimator, a_nan_from_a_product_is_a_status_never_a_zero) {
  for (const bool in_hessian : {false, true}) {
    if (in_hessian && (GetParam() == "one-step" || GetParam() == "t1t2"))
      continue;  // they take no such product
    const NanProducts broken(ridge, in_hessian);
    Oracle other(broken);
    const Hypergradient found = estimate_along(GetParam(), settings, other, x, inner);
    EXPECT_EQ(found.status, Status::not_finite) << in_hessian;
    if (!in_hessian) {
      EXPECT_TRUE(found.value.isnan().any().item<bool>());
    }
  }
}

// f is finite where df/dw is not: the square root of zero.
TEST_P(EveryEstimator, a_nan_in_the_outer_gradient_is_a_status_never_a_zero) {
  class NanGradient : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& b) const override {
      return base_.outer_loss(w, x, b) + (w - w.detach()).square().sum().sqrt();
    }
  };
  const NanGradient broken(ridge);
  Oracle other(broken);
  EXPECT_EQ(estimate_along(GetParam(), settings, other, x, inner).status, Status::not_finite);
  // Nor is a difference along that NaN blamed on the inner loss.
  settings.curvature.difference_cross = true;
  EXPECT_EQ(estimate_along(GetParam(), settings, other, x, inner).status, Status::not_finite);
}

TEST_P(EveryEstimator, a_nan_from_the_outer_loss_stops_with_its_cause) {
  class NanLoss : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& b) const override {
      return base_.outer_loss(w, x, b) * nan;
    }
  };
  const NanLoss broken(ridge);
  Oracle other(broken);
  EXPECT_THAT([&] { estimate_along(GetParam(), settings, other, x, inner); },
              ThrowsMessage<NotFiniteError>(HasSubstr("outer_loss returned nan")));
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryEstimator, ::testing::ValuesIn(estimator_names()),
                         [](const auto& row) { return test_name(row.param); });

TEST(Estimator, the_registry_holds_the_names_of_the_literature) {
  EXPECT_EQ(estimator_names(),
            (std::vector<std::string>{"exact", "one-step", "t1t2", "reverse", "reverse-sqrt",
                                      "reverse-binomial", "truncated", "forward", "neumann", "cg", "minres",
                                      "fixed-point", "nystrom", "general-backward", "general-forward"}));
  EXPECT_THAT([] { make_estimator("newton", {}); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr("method 'newton'"), HasSubstr("reverse-binomial"))));
}

TEST(Estimator, names_settings_that_are_wrong) {
  const auto expect = [](const char* name, const std::function<void(EstimatorSettings&)>& spoil,
                         const char* what) {
    EstimatorSettings settings;
    spoil(settings);
    EXPECT_THAT([&] { make_estimator(name, settings); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(what)))
        << name;
  };
  for (const char* name : {"neumann", "cg", "minres", "fixed-point"}) {
    expect(
        name, [](EstimatorSettings& s) { s.terms = -1; }, "terms = -1: must be at least 0");
  }
  expect(
      "nystrom", [](EstimatorSettings& s) { s.terms = -1; }, "rank = -1");
  expect(
      "truncated", [](EstimatorSettings& s) { s.truncate = -1; }, "truncate = -1: must be at least 0");
  for (const double bad : {-0.1, nan, std::numeric_limits<double>::infinity()}) {
    expect(
        "neumann", [&](EstimatorSettings& s) { s.linear_rate = bad; }, "rate = ");
    expect(
        "fixed-point", [&](EstimatorSettings& s) { s.linear_rate = bad; }, "rate = ");
  }
  for (const double bad : {-0.1, nan}) {
    expect(
        "cg", [&](EstimatorSettings& s) { s.relative_tolerance = bad; }, "relative_tolerance = ");
    expect(
        "minres", [&](EstimatorSettings& s) { s.relative_tolerance = bad; }, "relative_tolerance = ");
  }
  for (const char* name : {"exact", "neumann", "cg", "minres", "fixed-point", "nystrom"}) {
    expect(
        name, [](EstimatorSettings& s) { s.curvature.damping = -1; }, "damping = -1");
  }
}

// A learned start decides how large a state is, whatever start a caller passes beside it.
TEST(Estimator, checkpoints_are_sized_by_the_start_that_is_used) {
  const LearnedRate problem;
  Oracle oracle(problem);
  EstimatorSettings settings;
  settings.byte_budget = 4 * 35 * 8;
  const Tensor x = problem.initial_outer(0);
  const auto reverse = hypergradient_at(oracle, x, {}, descent(9), *make_estimator("reverse", settings));
  for (const Tensor& start : {Tensor(), vec({1}), problem.initial_inner(0)}) {
    const auto found =
        hypergradient_at(oracle, x, start, descent(9), *make_estimator("reverse-binomial", settings));
    EXPECT_TRUE(at::equal(found.hypergradient.value, reverse.hypergradient.value));
    EXPECT_EQ(found.hypergradient.bytes_kept, 4 * 35 * 8);
  }
  const Ridge ridge;
  Oracle other(ridge);
  EXPECT_THROW(hypergradient_at(other, ridge.initial_outer(0), {}, descent(9),
                                *make_estimator("reverse-binomial", settings)),
               std::invalid_argument);
  EXPECT_THROW(make_estimator("reverse-binomial", settings)->keeps(9, 0), std::invalid_argument);
}

class WarmStart : public ::testing::Test {
 protected:
  const Ridge ridge;
  Oracle oracle{ridge};
  const Tensor x = ridge.initial_outer(0), w = random_vector(20, 1);
  const Dense d = dense_at(ridge, w, x);
  Trajectory here = standing_at(w, 0.3);

  Hypergradient estimate(const char* name, int64_t terms, const Tensor& warm_start) {
    EstimatorSettings settings;
    settings.terms = terms;
    return make_estimator(name, settings)
        ->estimate(oracle, {.x = x, .inner = here, .warm_start = warm_start});
  }
};

TEST_F(WarmStart, no_steps_from_it_return_it) {
  const Tensor v = random_vector(20, 2);
  for (const char* name : {"cg", "minres", "fixed-point"}) {
    EXPECT_LT(relative_error(estimate(name, 0, v).value, d.direct - d.cross.mv(v)), 1e-14) << name;
    EXPECT_TRUE(at::equal(estimate(name, 0, v).solution, v)) << name;
  }
}

TEST_F(WarmStart, fixed_point_goes_on_where_it_stopped) {
  const Hypergradient first = estimate("fixed-point", 3, {});
  const Hypergradient onward = estimate("fixed-point", 4, first.solution);
  EXPECT_LT(relative_error(onward.value, estimate("fixed-point", 7, {}).value), 1e-14);
}

TEST_F(WarmStart, krylov_methods_solve_from_it_and_stop_at_a_solution) {
  const Tensor exact = solve(d.hessian, d.p);
  for (const char* name : {"cg", "minres"}) {
    const Tensor far = random_vector(20, 2);
    EXPECT_LT(relative_error(estimate(name, 20, far).solution, exact), 1e-11) << name;
    const Tensor near = exact + 1e-3 * random_vector(20, 3);
    EXPECT_LT(relative_error(estimate(name, 4, near).solution, exact),
              0.1 * relative_error(estimate(name, 4, {}).solution, exact))
        << name;
    const Hypergradient done = estimate(name, 10, estimate(name, 40, {}).solution);
    EXPECT_LE(done.counts.hessian, 4) << name;  // one to see the residual; rounding may ask for a few more
    EXPECT_LT(relative_error(done.solution, exact), 1e-13) << name;
  }
}

TEST_F(WarmStart, is_not_written_to_and_must_be_of_its_dtype) {
  const Tensor v = random_vector(20, 2), kept = v.clone();
  for (const char* name : {"cg", "minres", "fixed-point"}) {
    estimate(name, 5, v);
    EXPECT_TRUE(at::equal(v, kept)) << name;
    EXPECT_THROW(estimate(name, 5, v.to(at::kFloat)), std::invalid_argument) << name;
  }
}

}  // namespace
}  // namespace bilevel::test
