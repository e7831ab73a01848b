#pragma once
// An estimator's own options out of what a user gave for any estimator. Internal: the registries use it.

#include "bilevel/hypergradients/cg.h"
#include "bilevel/hypergradients/exact.h"
#include "bilevel/hypergradients/fixed_point.h"
#include "bilevel/hypergradients/neumann.h"
#include "bilevel/hypergradients/nystrom.h"
#include "bilevel/hypergradients/one_step.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/hypergradients/reverse_binomial.h"
#include "bilevel/hypergradients/truncated.h"

namespace bilevel {

ExactOptions exact_options(const EstimatorSettings& s);
OneStepOptions one_step_options(const EstimatorSettings& s);
ReverseBinomialOptions reverse_binomial_options(const EstimatorSettings& s);
TruncatedOptions truncated_options(const EstimatorSettings& s);
NeumannEstimatorOptions neumann_options(const EstimatorSettings& s);
KrylovOptions krylov_options(const EstimatorSettings& s);  // of cg and minres
FixedPointEstimatorOptions fixed_point_options(const EstimatorSettings& s);
NystromOptions nystrom_options(const EstimatorSettings& s);

}  // namespace bilevel
