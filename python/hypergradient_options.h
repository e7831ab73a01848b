#pragma once
// The options of bilevel.hypergradient(): those of one estimator, and the inner steps before it.

#include <memory>
#include <string>

#include "bilevel/core/inner.h"
#include "bilevel/fields/fields.h"
#include "bilevel/hypergradients/registry.h"

namespace bilevel::python {

struct HypergradientOptions {
  HypergradientOptions() { inner.steps = 0; }  // at w itself
  std::string method = "cg";
  EstimatorSettings settings = {};
  double checkpoint_megabytes = 64;
  InnerOptions inner = {};
  bool error_bound = false;
  Given given = {};
  static const Fields<HypergradientOptions>& fields();

  // Throws OptionError for what the method does not read, and for what it cannot do without.
  std::shared_ptr<const HypergradientEstimator> make();
  void check_own(const HypergradientEstimator& estimator);  // one that was written in Python

 private:
  void check_inner(bool implicit, bool rate_is_read) const;
};

}  // namespace bilevel::python
