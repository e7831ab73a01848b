#include "reproduce/public_rule.h"

#include <ATen/ATen.h>

#include <memory>

namespace bilevel::reproduce {

PublicRule::PublicRule(const PublicRuleOptions& options) : Algorithm(options.outer), options_(options) {
  options_.inner.validate();
}

IterationSummary PublicRule::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const Tensor x = state.x, w = state.inner.w;
  const double eta = options_.inner.rate * options_.inner.schedule.factor(state.inner.step);
  const Batch train = streams.inner("hessian");
  const OuterGradients valid = oracle.outer_gradients(w, x, streams.outer("loss"));
  const auto at_point = oracle.linearize(w, x, train);
  Tensor term = valid.w, sum = valid.w;
  for (int64_t k = 0; k < options_.terms; ++k) {
    term = descend(term, at_point->hessian(term), eta);
    sum = sum + term;
  }
  const Tensor radius = options_.difference_step / valid.w.norm();
  const Tensor above = oracle.inner_gradient_in_outer(w + radius * sum, x, train);
  const Tensor below = oracle.inner_gradient_in_outer(w - radius * sum, x, train);
  const Tensor direction = descend(valid.x, (above - below) / (2 * radius), eta);
  state.x = outer().step(x, direction, state.outer);
  state.inner.w = w - radius * (sum - valid.w);
  state.inner.step += options_.inner.steps;
  return {.direction = direction, .outer_loss = valid.loss, .status = Status::ok, .direct = valid.x};
}

void follow_public_code(SearchSetting& setting) {
  setting.label += ", public code";
  setting.options.weight_decay = 0;
  setting.rule = [](const nas::SearchOptions& o, double) -> std::unique_ptr<Algorithm> {
    return std::make_unique<PublicRule>(
        PublicRuleOptions{.inner = o.inner, .terms = o.hypergradient.terms, .outer = o.outer});
  };
}

}  // namespace bilevel::reproduce
