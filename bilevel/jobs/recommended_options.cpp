#include "bilevel/jobs/recommended_options.h"

#include <string>
#include <utility>

#include "bilevel/hypergradients/registry.h"

namespace bilevel {
namespace {

bool has_momentum(const InnerOptions& inner) {
  return inner.optimizer == "nesterov" || inner.optimizer == "heavy-ball";
}

void add_recommended(const Diagnosis& d, bool rate_is_learned, NamedWords& options) {
  const Recommendation& r = d.recommendation;
  const auto add = [&](const std::string& name, const auto& value) {
    options.emplace_back(name, std::vector<std::string>{word_of(value)});
  };
  if (r.has_terms) add(r.method == "truncated" ? "truncate" : "terms", r.terms);
  add("inner_steps", r.inner.steps);
  if (!rate_is_learned) add("inner_rate", r.inner.rate);
  add("inner_optimizer", r.inner.optimizer);
  if (has_momentum(r.inner)) add("inner_momentum", r.inner.momentum);
  const OwnOptions& own = find_estimator(r.method).options;
  if (own.has("damping") && (r.curvature.kind != "hessian" || r.curvature.damping > 0)) {
    add("curvature", r.curvature.kind);
    add("damping", r.curvature.damping);
  }
  if (r.linear_rate > 0 && own.has("linear_rate")) add("linear_rate", r.linear_rate);
}

}  // namespace

NamedWords recommended_check_options(const Diagnosis& d, bool rate_is_learned) {
  NamedWords options = {{"methods", {d.recommendation.method}}};
  add_recommended(d, rate_is_learned, options);
  if (d.reference == ReferenceKind::iterate) options.push_back({"reference", {"iterate"}});
  return options;
}

NamedWords recommended_algorithm_options(const Diagnosis& d, bool rate_is_learned) {
  NamedWords options = {{"algorithm", {"double-loop"}}, {"method", {d.recommendation.method}}};
  add_recommended(d, rate_is_learned, options);
  return options;
}

Json recommendation_json(const Recommendation& r) {
  Json out = {{"method", r.method}};
  if (r.has_terms) out["K"] = r.terms;
  out["inner_steps"] = r.inner.steps;
  out["inner_rate"] = number(r.inner.rate);
  out["inner_optimizer"] = r.inner.optimizer;
  if (has_momentum(r.inner)) out["inner_momentum"] = r.inner.momentum;
  out["curvature"] = r.curvature.kind;
  out["damping"] = r.curvature.damping;
  if (r.linear_rate > 0) out["series_rate"] = r.linear_rate;
  out["error"] = number(r.error);
  out["basis"] = name_of(r.basis);
  out["another_error"] = number(r.another_error);
  out["reaches"] = r.reaches;
  out["sentence"] = r.sentence;
  return out;
}

}  // namespace bilevel
