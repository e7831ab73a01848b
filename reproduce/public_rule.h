#pragma once
// The step of alpha as the public NAS-Bench-201 code of iDARTS (Zhang et al., ICML 2021) takes it, which is
// not Algorithm 1 of the paper. Its T weight steps act on copies of the weights and of their optimiser, so
// that they move nothing. With V_0 = grad_w L_valid, V_k = (I - eta H) V_{k-1} on one training batch, S = V_0
// + ... + V_K and R = 0.01 / |V_0|, the cross product is a difference of grad_alpha L_train over w + R S and
// w - R S, for which w itself is moved. On the way back R V_0 is added instead of R S:
//
//     alpha <- alpha - rate (grad_alpha L_valid - eta C S),    w <- w - R (V_1 + ... + V_K)
//
// So w takes a normalised step down the validation loss, and no other. This is here to explain the published
// numbers; it is not a method of `bilevel search`.

#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "reproduce/idarts_runs.h"

namespace bilevel::reproduce {

struct PublicRuleOptions {
  InnerOptions inner = {};  // T, which counts in the schedule alone, and eta
  int64_t terms = 2;        // K
  double difference_step = 0.01;
  OuterOptions outer = {};
};

class PublicRule : public Algorithm {
 public:
  explicit PublicRule(const PublicRuleOptions& options);
  std::string_view name() const override { return "idarts-public-code"; }

 private:
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  PublicRuleOptions options_;
};

// The rule, and the set-up that belongs to it: weight decay is their optimiser's, which moves nothing.
void follow_public_code(SearchSetting& setting);

}  // namespace bilevel::reproduce
