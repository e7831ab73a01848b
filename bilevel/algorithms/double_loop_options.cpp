#include "bilevel/algorithms/double_loop_options.h"

namespace bilevel {

const Fields<GrowingLoopOptions>& GrowingLoopOptions::fields() {
  static const Fields<GrowingLoopOptions> table = [] {
    using O = GrowingLoopOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.loop; }, DoubleLoopWith<KrylovOptions>::fields());
    f.add(
         "growth", [](O & o) -> auto& { return o.growth; },
         "T grows with the iteration k as T_k = ceil(growth (k+1)^(1/4)); 0 = constant T")
        .in(at_least(0, bounds::within_step));
    return f;
  }();
  return table;
}

const Fields<AnyDoubleLoopOptions>& AnyDoubleLoopOptions::fields() {
  static const Fields<AnyDoubleLoopOptions> table = [] {
    using O = AnyDoubleLoopOptions;
    Fields<O> f;
    f.add(
         "method", [](O & o) -> auto& { return o.method; },
         "estimator of the hypergradient; `bilevel list` shows them")
        .first();
    f.include(
        [](O & o) -> auto& { return o.loop; }, DoubleLoopWith<EstimatorSettings>::fields());
    return f;
  }();
  return table;
}

}  // namespace bilevel
