// The look at a supernet before a search: its claims hold on the batch that it looks at.
#include "bilevel/nas/search_diagnosis.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>

#include "bilevel/core/weight_decay.h"
#include "bilevel/hypergradients/registry.h"
#include "tests/messages.h"
#include "tests/nas/small_supernet.h"

namespace bilevel::nas {
namespace {

using ::testing::HasSubstr;
using namespace bilevel::test;

struct Small {
  NamedProblem named = make_synthetic_supernet(small_supernet());
  SearchOptions options;
  Small() {
    options.batch = 6;
    options.inner.rate = 0.05;
    options.weight_decay = 0;
  }
};

TEST(SearchDiagnosis, WhatItSaysOfTheCurvatureIsSo) {
  Small small;
  const SearchDiagnosis d = diagnose_search(*small.named.problem, small.options);
  const Tensor w = small.named.problem->initial_inner(0), x = small.named.problem->initial_outer(0);
  const Batch batch =
      BatchStream(0, "diagnosis train", small.named.problem->inner_samples(), {.size = 6}).at(0);
  const Tensor values = std::get<0>(at::linalg_eigh(dense_at(*small.named.problem, w, x, batch).hessian));
  // A few products: Rayleigh quotients, inside the spectrum and near its ends.
  EXPECT_GE(d.hessian.smallest, number(values.min()) - 1e-9);
  EXPECT_LE(d.hessian.largest, number(values.max()) + 1e-9);
  EXPECT_NEAR(d.hessian.largest, number(values.max()), 0.05 * number(values.max()));
  EXPECT_LT(number(values.min()), 0);
  EXPECT_EQ(d.curvature, "gauss-newton");
  EXPECT_NEAR(d.linear_rate * d.inverted.largest, 1, 1e-9);
  EXPECT_THAT(d.sentence, HasSubstr(d.method));
}

TEST(SearchDiagnosis, TheAccuracyDecides) {
  Small small;
  const SearchDiagnosis fine = diagnose_search(*small.named.problem, small.options, 1e-6);
  EXPECT_EQ(fine.method, "idarts");
  EXPECT_EQ(fine.terms, fine.longest);
  EXPECT_TRUE(std::isnan(fine.error));  // it is the yardstick itself: no error is known
  EXPECT_GT(fine.implicit_share, 1e-6);
  int64_t last = fine.terms;
  for (const double accuracy : {0.01, 0.1, 0.5}) {
    const SearchDiagnosis d = diagnose_search(*small.named.problem, small.options, accuracy);
    EXPECT_TRUE(d.method != "idarts" || d.terms == d.longest || d.error <= accuracy) << d.sentence;
    EXPECT_LE(d.terms, last);
    last = d.terms;
  }
  const SearchDiagnosis coarse = diagnose_search(*small.named.problem, small.options, 0.999);
  EXPECT_EQ(coarse.method == "darts-first-order", coarse.error <= 0.999 && coarse.terms == 0);
  EXPECT_THAT(message([&] { diagnose_search(*small.named.problem, small.options, 0); }),
              HasSubstr("accuracy = 0"));
}

// DARTS's direction from dense derivatives on the batches of the diagnosis, with the optimiser's own step.
TEST(SearchDiagnosis, TheErrorOfDartsIsThatOfItsOwnStep) {
  for (const char* optimizer : {"gd", "nesterov", "heavy-ball"}) {
    Small small;
    small.options.inner.optimizer = optimizer;
    small.options.inner.momentum = 0.9;
    const Problem& problem = *small.named.problem;
    const Tensor w = problem.initial_inner(0), x = problem.initial_outer(0);
    const Batch train = BatchStream(0, "diagnosis train", problem.inner_samples(), {.size = 6}).at(0);
    const Batch valid = BatchStream(0, "diagnosis valid", problem.outer_samples(), {.size = 6}).at(0);
    const SearchDiagnosis fine = diagnose_search(problem, small.options, 1e-6);

    const auto inner = make_inner_optimizer(small.options.inner);
    Oracle oracle(problem);
    const Tensor gradient = oracle.inner_gradient(w, x, train);
    const InnerState after = inner->step(inner->start(w), gradient, {small.options.inner.rate, {}});
    const Dense before_step = dense_at(problem, w, x, train, valid);
    const Dense after_step = dense_at(problem, after.w, x, train, valid);
    const double beta = 0.9, rate = small.options.inner.rate;
    const double coefficient = std::string(optimizer) == "nesterov" ? rate * (1 + beta) : rate;
    const Tensor darts = after_step.direct - coefficient * before_step.cross.mv(after_step.p);

    Trajectory here;
    here.optimizer = make_inner_optimizer(small.options.inner);
    here.final = here.optimizer->start(w);
    HypergradientRequest request{.x = x, .inner = here};
    request.outer = valid;
    request.cross = train;
    request.hessian = {train};
    EstimatorSettings settings;
    settings.terms = fine.longest;
    settings.linear_rate = fine.linear_rate;
    settings.curvature.kind = fine.curvature;
    const Hypergradient reference = make_estimator("neumann", settings)->estimate(oracle, request);
    const double error = relative_error(darts, reference.value);
    const double first_order = relative_error(reference.direct, reference.value);
    ASSERT_LT(error, first_order) << optimizer;

    const SearchDiagnosis d = diagnose_search(problem, small.options, std::sqrt(error * first_order));
    EXPECT_EQ(d.method, "darts") << optimizer;
    EXPECT_NEAR(d.error, error, 1e-9 * error) << optimizer;
  }
}

}  // namespace
}  // namespace bilevel::nas
