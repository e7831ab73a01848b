#include "bilevel/hypergradients/registry.h"

#include <fmt/format.h>

#include <set>
#include <stdexcept>

#include "bilevel/hypergradients/cg.h"
#include "bilevel/hypergradients/exact.h"
#include "bilevel/hypergradients/fixed_point.h"
#include "bilevel/hypergradients/forward.h"
#include "bilevel/hypergradients/general.h"
#include "bilevel/hypergradients/minres.h"
#include "bilevel/hypergradients/neumann.h"
#include "bilevel/hypergradients/nystrom.h"
#include "bilevel/hypergradients/one_step.h"
#include "bilevel/hypergradients/reverse.h"
#include "bilevel/hypergradients/reverse_binomial.h"
#include "bilevel/hypergradients/reverse_sqrt.h"
#include "bilevel/hypergradients/t1t2.h"
#include "bilevel/hypergradients/truncated.h"

namespace bilevel {
namespace {

using Made = std::unique_ptr<HypergradientEstimator>;
using Settings = EstimatorSettings;

// Of every estimator on CurvatureProducts (implicit.h), and its own.
std::set<EstimatorOption> on_curvature(std::set<EstimatorOption> own = {}) {
  own.insert({EstimatorOption::damping, EstimatorOption::curvature, EstimatorOption::difference_hessian,
              EstimatorOption::difference_cross});
  return own;
}

KrylovOptions krylov(const Settings& s) {
  return {.steps = s.terms, .relative_tolerance = s.relative_tolerance, .curvature = s.curvature};
}

}  // namespace

const std::vector<EstimatorRow>& estimator_rows() {
  static const std::vector<EstimatorRow> rows = {
      {"exact", "implicit, by a factorisation or CG to rounding", on_curvature(),
       [](const Settings& s) -> Made {
         return std::make_unique<Exact>(ExactOptions{.curvature = s.curvature});
       }},
      {"one-step",
       "DARTS: the derivative of the last step alone",
       {EstimatorOption::difference_cross},
       [](const Settings& s) -> Made {
         return std::make_unique<OneStep>(OneStepOptions{.difference_cross = s.curvature.difference_cross,
                                                         .difference_step = s.curvature.difference_step});
       }},
      {"t1t2",
       "the inverse Hessian replaced by the identity",
       {},
       [](const Settings&) -> Made { return std::make_unique<T1T2>(); }},
      {"reverse",
       "back-propagation through all T steps, all kept",
       {},
       [](const Settings&) -> Made { return std::make_unique<Reverse>(); }},
      {"reverse-sqrt",
       "the same, every sqrt(T)-th iterate kept",
       {},
       [](const Settings&) -> Made { return std::make_unique<ReverseSqrt>(); }},
      {"reverse-binomial",
       "the same, within a byte budget (Revolve)",
       {EstimatorOption::byte_budget},
       [](const Settings& s) -> Made {
         return std::make_unique<ReverseBinomial>(ReverseBinomialOptions{.byte_budget = s.byte_budget});
       }},
      {"truncated",
       "K-RMD: back-propagation through the last K steps",
       {EstimatorOption::truncate, EstimatorOption::difference_cross},
       [](const Settings& s) -> Made {
         return std::make_unique<Truncated>(TruncatedOptions{.steps = s.truncate,
                                                             .difference_cross = s.curvature.difference_cross,
                                                             .difference_step = s.curvature.difference_step});
       }},
      {"forward",
       "sensitivities carried along the steps",
       {},
       [](const Settings&) -> Made { return std::make_unique<Forward>(); }},
      {"neumann", "iDARTS, stocBiO: a series with K Hessian products",
       on_curvature({EstimatorOption::terms, EstimatorOption::linear_rate}),
       [](const Settings& s) -> Made {
         return std::make_unique<NeumannEstimator>(
             NeumannEstimatorOptions{.terms = s.terms, .rate = s.linear_rate, .curvature = s.curvature});
       }},
      {"cg", "AID-CG: conjugate gradients",
       on_curvature({EstimatorOption::terms, EstimatorOption::relative_tolerance}),
       [](const Settings& s) -> Made { return std::make_unique<ConjugateGradientEstimator>(krylov(s)); }},
      {"minres", "minimal residuals, for indefinite curvature",
       on_curvature({EstimatorOption::terms, EstimatorOption::relative_tolerance}),
       [](const Settings& s) -> Made { return std::make_unique<MinresEstimator>(krylov(s)); }},
      {"fixed-point", "AID-FP: a fixed-point iteration",
       on_curvature({EstimatorOption::terms, EstimatorOption::linear_rate}),
       [](const Settings& s) -> Made {
         return std::make_unique<FixedPointEstimator>(
             FixedPointEstimatorOptions{.steps = s.terms, .rate = s.linear_rate, .curvature = s.curvature});
       }},
      {"nystrom", "the inverse of a low-rank approximation",
       on_curvature({EstimatorOption::terms, EstimatorOption::seed}),
       [](const Settings& s) -> Made {
         const int64_t rank = s.terms == 0 ? 1 : s.terms;  // zero terms are legal everywhere else
         return std::make_unique<NystromEstimator>(
             NystromOptions{.rank = rank, .seed = s.seed, .curvature = s.curvature});
       }},
      {"general-backward",
       "FSLA's Lemma 2 over the inner iterates, backward",
       {},
       [](const Settings&) -> Made { return std::make_unique<GeneralBackward>(); }},
      {"general-forward",
       "FSLA's Lemma 2 over the inner iterates, forward",
       {},
       [](const Settings&) -> Made { return std::make_unique<GeneralForward>(); }},
  };
  return rows;
}

const EstimatorRow& find_estimator(const std::string& name) {
  for (const EstimatorRow& row : estimator_rows()) {
    if (row.name == name) return row;
  }
  std::string names;
  for (const EstimatorRow& row : estimator_rows()) names += (names.empty() ? "" : ", ") + row.name;
  throw std::invalid_argument(fmt::format("method '{}' is unknown: choose from {}", name, names));
}

std::unique_ptr<HypergradientEstimator> make_estimator(const std::string& name,
                                                       const EstimatorSettings& settings) {
  return find_estimator(name).make(settings);
}

}  // namespace bilevel
