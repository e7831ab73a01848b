// The rules of a search never look at a number while looks are put off, which on a GPU would make the host
// wait in the middle of an epoch; and what they did not look at is found at its end.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bilevel/algorithms/darts.h"
#include "bilevel/algorithms/double_loop.h"
#include "bilevel/core/errors.h"
#include "bilevel/core/problem.h"
#include "bilevel/hypergradients/neumann.h"
#include "bilevel/hypergradients/truncated.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

// g = |w - x|^2 / 2 and f = |w - 1|^2 / 2 in closed form: on the CPU automatic differentiation looks at the
// losses itself.
class Bowl : public Problem {
  class At : public Linearization {
   public:
    explicit At(Tensor gradient) : gradient_(std::move(gradient)) {}
    Tensor gradient() override { return gradient_; }
    Tensor hessian(const Tensor& v) override { return v.clone(); }
    Tensor cross(const Tensor& v) override { return -v; }
    Tensor cross_transposed(const Tensor& u) override { return -u; }

   private:
    Tensor gradient_;
  };

 public:
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch&) const override {
    return 0.5 * (w - x).square().sum();
  }
  Tensor outer_loss(const Tensor& w, const Tensor&, const Batch&) const override {
    return 0.5 * (w - 1).square().sum();
  }
  Tensor initial_inner(uint64_t) const override { return vec({1, 2, 3}); }
  Tensor initial_outer(uint64_t) const override { return vec({3, 2, 0.5}); }
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch&) const override { return w - x; }
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch&) const override {
    return x - w;
  }
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return {outer_loss(w, x, batch), w - 1, at::zeros_like(x)};
  }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x, const Batch&) const override {
    return std::make_unique<At>(w - x);
  }
};

std::vector<std::unique_ptr<Algorithm>> rules_of_a_search() {
  const InnerOptions inner{.steps = 3, .rate = 0.1};
  const OuterOptions outer{.optimizer = "adam", .rate = 0.01};
  CurvatureOptions differences;
  differences.difference_cross = true;
  std::vector<std::unique_ptr<Algorithm>> rules;
  rules.push_back(
      std::make_unique<Darts>(DartsOptions{.inner = inner, .outer = outer, .curvature = differences}));
  rules.push_back(std::make_unique<Darts>(DartsOptions{.inner = inner, .outer = outer, .first_order = true}));
  rules.push_back(std::make_unique<DoubleLoop>(
      DoubleLoopOptions{.inner = inner, .outer = outer, .warm_start_linear = false},
      std::make_unique<NeumannEstimator>(NeumannEstimatorOptions{.terms = 2, .curvature = differences})));
  rules.push_back(std::make_unique<DoubleLoop>(
      DoubleLoopOptions{.inner = inner, .outer = outer},
      std::make_unique<Truncated>(TruncatedOptions{.steps = 2, .difference_cross = true})));
  return rules;
}

TEST(PutOffChecks, are_answered_at_the_end_and_stop_no_step) {
  const Bowl bowl;
  for (const auto& rule : rules_of_a_search()) {
    Oracle oracle(bowl);
    Streams streams(1, bowl.inner_samples(), bowl.outer_samples());
    const AlgorithmState start = rule->init(oracle, bowl.initial_outer(0), bowl.initial_inner(0));
    AlgorithmState broken = start;
    broken.inner.w = at::full_like(bowl.initial_inner(0), std::numeric_limits<double>::quiet_NaN());
    {
      NoWaiting later(oracle.finite(), /*on_cpu_too=*/true);
      AlgorithmState now = start;
      rule->step(oracle, now, streams);
      EXPECT_TRUE(later.all_finite_so_far()) << rule->name();
      now = broken;
      EXPECT_NO_THROW(rule->step(oracle, now, streams)) << rule->name();
      EXPECT_FALSE(later.all_finite_so_far()) << rule->name();
      EXPECT_TRUE(later.all_finite_so_far()) << "it was asked twice about the same step";
    }
    EXPECT_THROW(rule->step(oracle, broken, streams), NotFiniteError) << rule->name();
  }
}

// On the CPU a search sees it at once.
TEST(PutOffChecks, are_not_put_off_on_the_cpu) {
  const Bowl bowl;
  for (const auto& rule : rules_of_a_search()) {
    Oracle oracle(bowl);
    Streams streams(1, bowl.inner_samples(), bowl.outer_samples());
    AlgorithmState state = rule->init(oracle, bowl.initial_outer(0), bowl.initial_inner(0));
    state.inner.w = at::full_like(bowl.initial_inner(0), std::numeric_limits<double>::quiet_NaN());
    const NoWaiting later(oracle.finite());
    EXPECT_THROW(rule->step(oracle, state, streams), NotFiniteError) << rule->name();
  }
}

}  // namespace
}  // namespace bilevel::test
