#include "bilevel/hypergradients/exact.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/fields/fields.h"

namespace bilevel {

void ExactOptions::validate() const {
  curvature.validate();
  require_at_least("direct_limit", direct_limit, 0);
  if (!(relative_tolerance >= 0)) {
    throw std::invalid_argument(
        fmt::format("relative_tolerance = {}: must be at least 0", relative_tolerance));
  }
}

const Fields<ExactOptions>& ExactOptions::fields() {
  static const Fields<ExactOptions> table = [] {
    using O = ExactOptions;
    Fields<O> f;
    f.add(
         "direct_limit", [](O & o) -> auto& { return o.direct_limit; },
         "largest number of inner variables for which the matrix is assembled and factorised")
        .in(at_least(0, bounds::width));
    f.add(
         "cg_tolerance", [](O & o) -> auto& { return o.relative_tolerance; },
         "residual at which conjugate gradients stop above that limit")
        .in(at_least(0));
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    return f;
  }();
  return table;
}

Exact::Exact(ExactOptions options) : options_(std::move(options)) { options_.validate(); }

Hypergradient Exact::compute(Oracle& oracle, const HypergradientRequest& request) const {
  return implicit_hypergradient(oracle, request, options_.curvature,
                                [this](CurvatureProducts& products, const Tensor& p) {
                                  if (p.numel() <= options_.direct_limit)
                                    return direct_solve(products.matrix(), p, {.limit = p.numel()});
                                  const double rounding = p.scalar_type() == at::kDouble ? 1e-14 : 1e-6;
                                  KrylovSolveOptions cg;
                                  cg.max_iterations = 10 * p.numel();
                                  cg.relative_tolerance = std::max(options_.relative_tolerance, rounding);
                                  return conjugate_gradient(products.matrix(), p, cg);
                                });
}

}  // namespace bilevel
