#include "python/hypergradient_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"

namespace bilevel::python {

const Fields<HypergradientOptions>& HypergradientOptions::fields() {
  static const Fields<HypergradientOptions> table = [] {
    using O = HypergradientOptions;
    std::vector<std::string> methods;
    for (const EstimatorRow& row : estimator_rows()) methods.push_back(row.name);
    Fields<O> f;
    f.add(
         "method", [](O & o) -> auto& { return o.method; }, "estimator of the hypergradient")
        .one_of(std::move(methods))
        .first();
    f.add(
         "terms", [](O & o) -> auto& { return o.settings.terms; },
         "K: Hessian products of neumann, steps of cg, minres and fixed-point, rank of nystrom")
        .in(at_least(0, bounds::within_step))
        .first();
    f.add(
         "truncate", [](O & o) -> auto& { return o.settings.truncate; },
         "K: number of steps that truncated keeps")
        .in(at_least(0, bounds::within_step));
    f.add(
         "relative_tolerance", [](O & o) -> auto& { return o.settings.relative_tolerance; },
         "cg and minres stop where |H v - p| / |p| falls below this; 0 = all K steps")
        .in(at_least(0));
    f.add(
         "linear_rate", [](O & o) -> auto& { return o.settings.linear_rate; },
         fmt::format("linear rate of neumann and fixed-point, below 2 / the largest curvature; 0 = {}",
                     named("inner_rate")))
        .in(at_least(0));
    f.add(
         "damping", [](O & o) -> auto& { return o.settings.curvature.damping; }, "damping rho in H + rho I")
        .in(at_least(0));
    f.add(
         "curvature", [](O & o) -> auto& { return o.settings.curvature.kind; },
         "curvature matrix: hessian or gauss-newton")
        .one_of({"hessian", "gauss-newton"});
    f.add(
        "difference_hessian", [](O & o) -> auto& { return o.settings.curvature.difference_hessian; },
        "use central differences in place of Hessian products");
    f.add(
        "difference_cross", [](O & o) -> auto& { return o.settings.curvature.difference_cross; },
        "use central differences in place of the cross product, as DARTS and iDARTS do");
    f.add(
         "difference_step", [](O & o) -> auto& { return o.settings.curvature.difference_step; },
         "distance that w is moved for a difference")
        .in(above(0));
    f.add(
        "seed", [](O & o) -> auto& { return o.settings.seed; }, "random seed for nystrom's directions");
    f.add(
         "checkpoint_megabytes", [](O & o) -> auto& { return o.checkpoint_megabytes; },
         "memory budget of reverse-binomial")
        .in(above(0, 1e9));
    f.add(
        "error_bound", [](O & o) -> auto& { return o.error_bound; },
        "bound the distance from the exact hypergradient, at the price of a few more products");
    f.heading("inner loop");
    f.add(
         "inner_steps", [](O & o) -> auto& { return o.inner.steps; },
         "T: inner steps from the given w; 0 = use w as it is, which estimators through the steps cannot")
        .in(at_least(0, bounds::within_step))
        .first();
    f.add(
         "inner_rate", [](O & o) -> auto& { return o.inner.rate; }, "rate of the inner steps")
        .in(above(0))
        .by_rule()
        .first();
    f.add(
         "inner_optimizer", [](O & o) -> auto& { return o.inner.optimizer; }, "inner optimiser")
        .one_of(inner_optimizer_names());
    f.add(
         "inner_momentum", [](O & o) -> auto& { return o.inner.momentum; },
         "momentum of heavy-ball and nesterov")
        .in(from_0_below_1());
    f.add(
         "inner_clip", [](O & o) -> auto& { return o.inner.clip_norm; },
         "clip inner gradients to this norm; 0 = no clipping")
        .in(at_least(0));
    f.add(
        "inner_schedule", [](O & o) -> auto& { return o.inner.schedule; },
        "constant, inverse-sqrt, cosine, linear, power or power:EXPONENT (0.5)");
    return f;
  }();
  return table;
}

namespace {

// Fields that belong to estimators: what they are called here, and in the table of an estimator that has one.
struct EstimatorField {
  const char *name, *own;
};
constexpr EstimatorField estimator_fields[] = {{"terms", "terms"},
                                               {"truncate", "truncate"},
                                               {"relative_tolerance", "relative_tolerance"},
                                               {"linear_rate", "linear_rate"},
                                               {"damping", "damping"},
                                               {"curvature", "curvature"},
                                               {"difference_hessian", "difference_hessian"},
                                               {"difference_cross", "difference_cross"},
                                               {"difference_step", "difference_step"},
                                               {"seed", "seed"},
                                               {"checkpoint_megabytes", "byte_budget"}};

// Those that were given.
std::vector<EstimatorField> given_estimator_fields(HypergradientOptions& options) {
  static const std::vector<const Field*> rows = [] {
    std::vector<const Field*> all;
    for (const EstimatorField& one : estimator_fields) {
      all.push_back(&find_field(HypergradientOptions::fields().rows(), one.name));
    }
    return all;
  }();
  std::vector<EstimatorField> given;
  const OptionsView view(options);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (view.is_given(*rows[i])) given.push_back(estimator_fields[i]);
  }
  return given;
}

[[noreturn]] void refuse(const std::string& field, const std::string& method) {
  throw OptionError(no_effect(named(field), named("method", method)));
}

}  // namespace

void HypergradientOptions::check_inner(bool implicit, bool rate_is_read) const {
  if (inner.steps == 0) {
    if (!implicit) {
      throw OptionError(fmt::format(
          "{} differentiates the inner steps: give {} and {}, or use an implicit estimator such as cg",
          named("method", method), named("inner_steps"), named("inner_rate")));
    }
    const std::pair<bool, const char*> unread[] = {{given(inner.rate) && !rate_is_read, "inner_rate"},
                                                   {given(inner.optimizer), "inner_optimizer"},
                                                   {given(inner.momentum), "inner_momentum"},
                                                   {given(inner.clip_norm), "inner_clip"},
                                                   {given(inner.schedule), "inner_schedule"}};
    for (const auto& [is_given, field] : unread) {
      if (is_given) {
        throw OptionError(no_effect(named(field), named("inner_steps", "0")));
      }
    }
    return;
  }
  if (!given(inner.rate)) {
    throw OptionError(fmt::format("{} needs {}, below 2 / the largest curvature of the inner loss",
                                  named("inner_steps", fmt::format("{}", inner.steps)), named("inner_rate")));
  }
}

std::shared_ptr<const HypergradientEstimator> HypergradientOptions::make() {
  const EstimatorRow* found = nullptr;
  for (const EstimatorRow& one : estimator_rows()) {
    if (one.name == method) found = &one;
  }
  if (found == nullptr) OptionsView(*this).at("method").require({method});  // throws, with all names
  const EstimatorRow& row = *found;
  for (const EstimatorField& one : given_estimator_fields(*this)) {
    if (!row.options.has(one.own)) refuse(one.name, method);
  }
  const bool series = row.options.has("linear_rate");
  if (series && settings.linear_rate == 0 && !given(inner.rate)) {
    throw OptionError(fmt::format("{} needs {} or {}, below 2 / the largest curvature of the inner loss",
                                  named("method", method), named("linear_rate"), named("inner_rate")));
  }
  settings.byte_budget = std::max<int64_t>(static_cast<int64_t>(checkpoint_megabytes * 1e6), 1);
  inner.schedule.total_steps = std::max<int64_t>(inner.steps, 1);
  std::shared_ptr<const HypergradientEstimator> estimator = row.make(settings);
  check_inner(estimator->implicit(), series && settings.linear_rate == 0);
  return estimator;
}

void HypergradientOptions::check_own(const HypergradientEstimator& estimator) {
  method = std::string(estimator.name());
  for (const EstimatorField& one : given_estimator_fields(*this)) {
    throw OptionError(
        fmt::format("{} applies to the library's estimators only: give it to {} when it is made",
                    named(one.name), method));
  }
  inner.schedule.total_steps = std::max<int64_t>(inner.steps, 1);
  check_inner(estimator.implicit(), false);
}

}  // namespace bilevel::python
