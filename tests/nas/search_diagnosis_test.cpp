// The look at a supernet before a search: its claims hold on the batch that it looks at.
#include "bilevel/nas/search_diagnosis.h"

#include <gmock/gmock.h>

#include <cmath>

#include "bilevel/core/weight_decay.h"
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
  EXPECT_NEAR(d.series_rate * d.inverted.largest, 1, 1e-9);
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
              HasSubstr("--accuracy 0"));
}

}  // namespace
}  // namespace bilevel::nas
