#include "bilevel/hypergradients/registry.h"

#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/hypergradients/forward.h"
#include "bilevel/hypergradients/from_settings.h"
#include "bilevel/hypergradients/general.h"
#include "bilevel/hypergradients/minres.h"
#include "bilevel/hypergradients/reverse.h"
#include "bilevel/hypergradients/reverse_sqrt.h"
#include "bilevel/hypergradients/t1t2.h"

namespace bilevel {
namespace {

using Settings = EstimatorSettings;

template <typename Estimator, typename Options>
EstimatorRow row(std::string name, std::string summary, Options (*from)(const Settings&)) {
  const OwnOptions own = OwnOptions::of<Options>();
  return {.name = std::move(name),
          .summary = std::move(summary),
          .options = own,
          .make = [from](const Settings& s) { return std::make_unique<Estimator>(from(s)); },
          .make_with =
              [own](const NamedWords& given) {
                return std::make_unique<Estimator>(*static_cast<const Options*>(own.with(given).get()));
              }};
}
template <typename Estimator>
EstimatorRow row(std::string name, std::string summary) {
  const OwnOptions own = OwnOptions::of<NoOptions>();
  return {.name = std::move(name),
          .summary = std::move(summary),
          .options = own,
          .make = [](const Settings&) { return std::make_unique<Estimator>(); },
          .make_with =
              [own](const NamedWords& given) {
                (void)own.with(given);  // refuses any
                return std::make_unique<Estimator>();
              }};
}

}  // namespace

ExactOptions exact_options(const Settings& s) { return {.curvature = s.curvature}; }
OneStepOptions one_step_options(const Settings& s) {
  return {.difference_cross = s.curvature.difference_cross, .difference_step = s.curvature.difference_step};
}
ReverseBinomialOptions reverse_binomial_options(const Settings& s) { return {.byte_budget = s.byte_budget}; }
TruncatedOptions truncated_options(const Settings& s) {
  return {.steps = s.truncate,
          .difference_cross = s.curvature.difference_cross,
          .difference_step = s.curvature.difference_step};
}
NeumannEstimatorOptions neumann_options(const Settings& s) {
  return {.terms = s.terms, .rate = s.linear_rate, .curvature = s.curvature};
}
KrylovOptions krylov_options(const Settings& s) {
  return {.steps = s.terms, .relative_tolerance = s.relative_tolerance, .curvature = s.curvature};
}
FixedPointEstimatorOptions fixed_point_options(const Settings& s) {
  return {.steps = s.terms,
          .rate = s.linear_rate,
          .relative_tolerance = s.relative_tolerance,
          .curvature = s.curvature};
}
NystromOptions nystrom_options(const Settings& s) {
  const int64_t rank = s.terms == 0 ? 1 : s.terms;  // zero terms are legal everywhere else
  return {.rank = rank, .seed = s.seed, .curvature = s.curvature};
}

const std::vector<EstimatorRow>& estimator_rows() {
  static const std::vector<EstimatorRow> rows = {
      row<Exact>("exact", "implicit, by a factorisation or CG to rounding", exact_options),
      row<OneStep>("one-step", "DARTS: the derivative of the last step only", one_step_options),
      row<T1T2>("t1t2", "the inverse Hessian replaced by the identity"),
      row<Reverse>("reverse", "back-propagation through all T steps, all kept"),
      row<ReverseSqrt>("reverse-sqrt", "the same, every sqrt(T)-th iterate kept"),
      row<ReverseBinomial>("reverse-binomial", "the same, within a byte budget (Revolve)",
                           reverse_binomial_options),
      row<Truncated>("truncated", "K-RMD: back-propagation through the last K steps", truncated_options),
      row<Forward>("forward", "sensitivities carried along the steps"),
      row<NeumannEstimator>("neumann", "iDARTS, stocBiO: a series with K Hessian products", neumann_options),
      row<ConjugateGradientEstimator>("cg", "AID-CG: conjugate gradients", krylov_options),
      row<MinresEstimator>("minres", "minimal residuals, for indefinite curvature", krylov_options),
      row<FixedPointEstimator>("fixed-point", "AID-FP: a fixed-point iteration", fixed_point_options),
      row<NystromEstimator>("nystrom", "the inverse of a low-rank approximation", nystrom_options),
      row<GeneralBackward>("general-backward", "FSLA's Lemma 2 over the inner iterates, backward"),
      row<GeneralForward>("general-forward", "FSLA's Lemma 2 over the inner iterates, forward"),
  };
  return rows;
}

const Fields<EstimatorSettings>& EstimatorSettings::fields() {
  static const Fields<EstimatorSettings> table = [] {
    using O = EstimatorSettings;
    Fields<O> f;
    // Bounds and help as the first estimator has them that reads the field.
    const auto add = [&](const std::string& name, auto member) {
      Field& field = f.add(name, member, "");
      for (const EstimatorRow& one : estimator_rows()) {
        if (one.options.has(name)) return field.like(find_field(one.options.fields(), name));
      }
    };
    add(
        "terms", [](O & o) -> auto& { return o.terms; });
    add(
        "truncate", [](O & o) -> auto& { return o.truncate; });
    add(
        "linear_rate", [](O & o) -> auto& { return o.linear_rate; });
    add(
        "relative_tolerance", [](O & o) -> auto& { return o.relative_tolerance; });
    add(
        "byte_budget", [](O & o) -> auto& { return o.byte_budget; });
    add(
        "seed", [](O & o) -> auto& { return o.seed; });
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    return f;
  }();
  return table;
}

const EstimatorRow& find_estimator(const std::string& name) {
  for (const EstimatorRow& row : estimator_rows()) {
    if (row.name == name) return row;
  }
  std::vector<std::string> names;
  for (const EstimatorRow& row : estimator_rows()) names.push_back(row.name);
  refuse_unknown("method", name, names);
}

std::unique_ptr<HypergradientEstimator> make_estimator(const std::string& name,
                                                       const EstimatorSettings& settings) {
  return find_estimator(name).make(settings);
}

std::unique_ptr<HypergradientEstimator> make_estimator_with(const std::string& name,
                                                            const NamedWords& given) {
  return find_estimator(name).make_with(given);
}

}  // namespace bilevel
