#include "bilevel/nas/guards/guard.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "bilevel/core/require.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/nas/guards/auxiliary_skip.h"
#include "bilevel/nas/guards/beta_decay.h"
#include "bilevel/nas/guards/partial_channels.h"
#include "bilevel/nas/guards/smoothing.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

const std::vector<GuardKind>& guard_kinds() {
  static const std::vector<GuardKind> kinds = {
      {"beta-decay", "lambda times the mean logsumexp of alpha's rows on top of f (Ye et al. 2022)",
       "lambda at the end of the search", 25, 1e6, "lambda, the weight of beta decay in alpha's loss",
       // lambda slows alpha's differences down: one that is large before they have moved keeps the first
       // epoch's accidents. 25, and two epochs before alpha moves, were chosen with 50 epochs of 390 steps at
       // 3e-4 (docs/search.md): on untrained weights all edges drift to the skip.
       50 * 390 * 3e-4, 2},
      {"smoothing", "weight steps at a mixture with uniform noise (SDARTS-RS, Chen and Hsieh 2020)",
       "bound of the noise at the end of the search", 0.3, 1,
       "The bound of the noise on the mixture in weight steps"},
      {"auxiliary-skip", "a second skip on every edge that fades away (DARTS-, Chu et al. 2021)",
       "factor of the skip in the first epoch", 1, 1e6, "The factor of the skip connection on every edge"},
      {"partial-channels",
       "one channel in K through the operations, the others by; inputs of nodes weighted (PC-DARTS, Xu et "
       "al. 2020)",
       "K, a whole number", 4, 64, "K: one channel in so many goes through the operations"},
  };
  return kinds;
}

const GuardKind& find_guard(const std::string& name) {
  std::vector<std::string> names = {"none"};
  for (const GuardKind& kind : guard_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  refuse_unknown("guard", name, names);
}

void GuardOptions::validate() const {
  if (!on()) return;
  const GuardKind& kind = find_guard(name);
  if (!(strength >= 0 && strength <= kind.largest_strength)) {
    throw OptionError(fmt::format("{}: {} takes 0 to {:g} ({})",
                                  named("guard_strength", fmt::to_string(strength)), name,
                                  kind.largest_strength, kind.quantity));
  }
  if (name == "partial-channels" && strength != std::floor(strength)) {
    throw OptionError(fmt::format(
        "{}: partial-channels takes a whole number K, one channel in K goes through the operations",
        named("guard_strength", fmt::to_string(strength))));
  }
}

int64_t GuardOptions::partial() const {
  return name == "partial-channels" && strength > 1 ? static_cast<int64_t>(strength) : 1;
}

Tensor Guard::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.inner_loss(w, x, batch);
}
Tensor Guard::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.outer_loss(w, x, batch);
}
Tensor Guard::initial_inner(uint64_t seed) const { return base_.initial_inner(seed); }
Tensor Guard::initial_outer(uint64_t seed) const { return base_.initial_outer(seed); }
int64_t Guard::inner_samples() const { return base_.inner_samples(); }
int64_t Guard::outer_samples() const { return base_.outer_samples(); }
std::unique_ptr<Linearization> Guard::linearize(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.linearize(w, x, batch);
}
Tensor Guard::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.inner_gradient(w, x, batch);
}
Tensor Guard::inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.inner_gradient_in_outer(w, x, batch);
}
OuterGradients Guard::outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.outer_gradients(w, x, batch);
}
OuterGradients Guard::outer_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.outer_gradient_in_outer(w, x, batch);
}
std::optional<InnerParts> Guard::inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return base_.inner_parts(w, x, batch);
}
const Layout* Guard::inner_layout() const { return base_.inner_layout(); }
bool Guard::inner_loss_uses_outer() const { return base_.inner_loss_uses_outer(); }

std::unique_ptr<Guard> make_guard(const GuardOptions& options, SupernetProblem& supernet,
                                  const SupernetEngine& engine) {
  options.validate();
  if (!options.on()) return nullptr;
  if (options.name == "partial-channels") {
    return std::make_unique<PartialChannels>(engine, supernet, options.strength);
  }
  if (options.name == "smoothing") return std::make_unique<Smoothing>(engine, supernet, options.strength);
  if (options.name == "auxiliary-skip") {
    return std::make_unique<AuxiliarySkip>(engine, supernet, options.strength);
  }
  return std::make_unique<BetaDecay>(engine, supernet.supernet().space(), options.strength);
}

}  // namespace bilevel::nas
