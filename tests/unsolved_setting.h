#pragma once
// Where every estimator can be tried on every problem known by name.

#include <string>

#include "bilevel/hypergradients/registry.h"
#include "bilevel/problems/registry.h"
#include "tests/support.h"

namespace bilevel::test {

// A problem at an x that is no special point, with a dozen steps that leave the inner problem unsolved.
struct UnsolvedSetting {
  explicit UnsolvedSetting(const std::string& name) : named(make_problem(name)), problem(*named.problem) {
    x = problem.initial_outer(0);
    x = x + 0.2 * random_like(x, 5);
    start = problem.initial_inner(1);
    options.steps = 12;
    options.rate = named.inner_rate;
    settings.terms = 4;
    settings.truncate = 5;
    settings.seed = 7;
    settings.byte_budget = 3 * static_cast<int64_t>(start.nbytes());
    // On networks the Hessian is indefinite and conjugate gradients rightly stop: damped, it is positive.
    settings.curvature.damping = named.convex ? 0 : 3;
  }
  NamedProblem named;
  const Problem& problem;
  Tensor x, start;
  InnerOptions options;
  EstimatorSettings settings;
};

}  // namespace bilevel::test
