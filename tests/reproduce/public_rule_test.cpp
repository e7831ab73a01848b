// The rule of iDARTS's public code against a loop that moves the weights to and fro as that code does.
#include "reproduce/public_rule.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "bilevel/nas/synthetic_supernet.h"
#include "bilevel/problems/mlp.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using reproduce::PublicRule;
using reproduce::PublicRuleOptions;

TEST(PublicRule, IsTheLoopThatForgetsPartOfTheRestore) {
  const Mlp problem;  // a network: the difference is not exact
  PublicRuleOptions options;
  options.inner = {.steps = 4, .rate = 0.1};
  options.inner.schedule = {.kind = ScheduleKind::cosine, .total_steps = 12, .final_fraction = 0.1};
  options.outer.rate = 0.5;
  const PublicRule rule(options);
  Oracle oracle(problem);
  const StreamOptions batches{.inner_batch = 8, .outer_batch = 6};
  Streams streams(3, problem.inner_samples(), problem.outer_samples(), batches);
  Streams twin(3, problem.inner_samples(), problem.outer_samples(), batches);
  AlgorithmState state = rule.init(oracle, problem.initial_outer(0), problem.initial_inner(0));

  Tensor w = state.inner.w.clone(), alpha = state.x.clone();
  for (int step = 0; step < 3; ++step) {
    const double eta = 0.1 * options.inner.schedule.factor(4 * step);
    const Batch train = twin.inner("hessian");
    const Batch valid = twin.outer("loss");
    const OuterGradients at_valid = problem.outer_gradients(w, alpha, valid);
    const Tensor v0 = at_valid.w;
    const auto hessian =
        [&](const Tensor& v) {  // by differences of the gradient, not by the library's product
          const double h = 1e-6;
          return (problem.inner_gradient(w + h * v, alpha, train) -
                  problem.inner_gradient(w - h * v, alpha, train)) /
                 (2 * h);
        };
    const Tensor v1 = v0 - eta * hessian(v0), v2 = v1 - eta * hessian(v1), sum = v0 + v1 + v2;
    const double radius = 0.01 / length(v0);
    w.add_(radius * sum);
    const Tensor above = problem.inner_gradient_in_outer(w, alpha, train);
    w.sub_(2 * radius * sum);
    const Tensor below = problem.inner_gradient_in_outer(w, alpha, train);
    w.add_(radius * v0);  // the whole sum was taken away
    alpha = alpha - 0.5 * (at_valid.x - eta * (above - below) / (2 * radius));

    const Tensor before = state.inner.w;
    rule.step(oracle, state, streams);
    EXPECT_LT(relative_error(state.inner.w, w), 1e-8) << step;
    EXPECT_LT(relative_error(state.x, alpha), 1e-8) << step;
    // A step of about 0.02 that follows the validation gradient, however small that is.
    EXPECT_NEAR(length(state.inner.w - before), 0.02, 0.005) << step;
    EXPECT_LT(at::dot(state.inner.w - before, v0).item<double>(), 0) << step;
  }
}

TEST(PublicRule, TakesTheMethodsPlaceInASearch) {
  nas::SupernetProblem problem = nas::synthetic_supernet({});
  reproduce::SearchSetting setting{
      "iDARTS", nas::default_search_options(problem.supernet().space(), "idarts"), {}};
  setting.options.guard = {};
  setting.options.epochs = 1;
  setting.options.batch = 8;
  setting.options.alpha_steps = 2;
  setting.options.eigenvalue_products = 0;
  reproduce::follow_public_code(setting);
  EXPECT_EQ(setting.label, "iDARTS, public code");
  nas::Search search(problem, setting.options, nullptr, setting.rule);
  Tensor first = search.begin().algorithm.inner.w, last;
  nas::SearchHooks hooks;
  hooks.step = [&](const nas::SearchState& state, int64_t) { last = state.algorithm.inner.w; };
  const nas::SearchSummary summary = search.run(search.begin(), hooks);
  EXPECT_EQ(summary.end, nas::SearchEnd::epochs_done);
  EXPECT_EQ(summary.counts.inner_gradient, 2 * 2);  // the differences; no weight step
  EXPECT_EQ(summary.counts.hessian, 2 * 2);
  EXPECT_LT(length(last - first), 0.06);
}

}  // namespace
}  // namespace bilevel::test
