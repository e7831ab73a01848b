#include "bilevel/algorithms/mrbo.h"

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {

void MrboOptions::validate() const {
  require_at_least("mrbo", "terms", terms, 0);
  momentum.validate("mrbo");
}

const Fields<MrboOptions>& MrboOptions::fields() {
  static const Fields<MrboOptions> table = [] {
    using O = MrboOptions;
    Fields<O> f;
    add_terms(
        f, [](O & o) -> auto& { return o.terms; });
    f.include(
        [](O & o) -> auto& { return o.momentum; }, RecursiveMomentumOptions::fields());
    return f;
  }();
  return table;
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
