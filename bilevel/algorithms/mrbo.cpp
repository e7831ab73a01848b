#include "bilevel/algorithms/mrbo.h"

#include "bilevel/core/require.h"

namespace bilevel {

void MrboOptions::validate() const {
  require_at_least("mrbo", "terms", terms, 0);
  momentum.validate("mrbo");
}

Mrbo::Mrbo(const MrboOptions& options) : RecursiveMomentum("mrbo", options.momentum), options_(options) {
  options_.validate();
}

HypergradientSample Mrbo::draw(Streams& streams) const {
  return draw_hypergradient_sample(streams, options_.terms);
}

ImplicitSolve Mrbo::solver(const HypergradientSample& sample) const {
  return neumann_on(sample, linear_rate());
}

}  // namespace bilevel
