#pragma once
// The options of the registry's algorithms that are double loops.

#include <string>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/inner.h"
#include "bilevel/core/outer.h"
#include "bilevel/fields/fields.h"
#include "bilevel/hypergradients/cg.h"
#include "bilevel/hypergradients/registry.h"

namespace bilevel {

// Of a double loop with one estimator, such as aid-cg: those of the loop, and the estimator's own.
template <typename EstimatorOptions>
struct DoubleLoopWith {
  InnerOptions inner = {};
  OuterOptions outer = {};
  bool with_bound = false;
  EstimatorOptions estimator = {};
  static const Fields<DoubleLoopWith>& fields() {
    static const Fields<DoubleLoopWith> table = [] {
      using O = DoubleLoopWith;
      Fields<O> f;
      f.include(
          [](O & o) -> auto& { return o.inner; }, inner_fields());
      f.include(
          [](O & o) -> auto& { return o.estimator; }, EstimatorOptions::fields());
      f.add(
          "error_bound", [](O & o) -> auto& { return o.with_bound; },
          "bound every hypergradient's distance from the exact one (docs/bounds.md)");
      f.include(
          [](O & o) -> auto& { return o.outer; }, outer_fields());
      return f;
    }();
    return table;
  }
};

// Of aid-increasing.
struct GrowingLoopOptions {
  DoubleLoopWith<KrylovOptions> loop = {};
  double growth = 0;  // 0 = the inner loop's steps
  static const Fields<GrowingLoopOptions>& fields();
};

// Of double-loop itself: the estimator is chosen by name, and takes from the settings what it reads.
struct AnyDoubleLoopOptions {
  DoubleLoopWith<EstimatorSettings> loop = {};
  std::string method = "cg";
  static const Fields<AnyDoubleLoopOptions>& fields();
};

}  // namespace bilevel
