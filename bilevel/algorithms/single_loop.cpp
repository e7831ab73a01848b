#include "bilevel/algorithms/single_loop.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {

void SingleLoopOptions::validate() const {
  if (solver != "neumann" && solver != "cg") {
    throw std::invalid_argument(fmt::format("single loop: solver = {}: must be neumann or cg", solver));
  }
  storm.validate("single-loop-" + solver);
  require_at_least("single-loop-" + solver, "terms", terms, 0);
  if (linear_rate != 0) require_positive("single-loop-" + solver, "linear_rate", linear_rate);
  curvature.validate();
}

const Fields<SingleLoopOptions>& SingleLoopOptions::fields() {
  static const Fields<SingleLoopOptions> table = [] {
    using O = SingleLoopOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.storm; }, StormOptions::fields());
    add_terms(
        f, [](O & o) -> auto& { return o.terms; });
    add_linear_rate(
        f, [](O & o) -> auto& { return o.linear_rate; });
    f.add(
         "relative_tolerance", [](O & o) -> auto& { return o.relative_tolerance; },
         "relative residual at which CG stops; 0 = always take all steps")
        .in(at_least(0));
    f.include(
        [](O & o) -> auto& { return o.curvature; }, matrix_fields());
    return f;
  }();
  return table;
}

SingleLoop::SingleLoop(const SingleLoopOptions& options)
    : StormLoop(options.storm, "single-loop-" + options.solver),
      options_(options),
      name_("single-loop-" + options.solver) {
  options_.validate();
  if (options_.linear_rate == 0) options_.linear_rate = options_.storm.inner_rate;
}

LinearResult SingleLoop::next_v(Oracle& oracle, const LinearPoint& at, Streams& streams) const {
  const bool series = options_.solver == "neumann";
  Trajectory point;
  point.final.w = at.after;
  HypergradientRequest request{.x = at.x, .inner = point};
  // CG needs one fixed matrix; the series is unbiased only with a new sample for every product.
  const int64_t samples = series ? options_.terms : 1;
  for (int64_t k = 0; k < samples; ++k) request.hessian.push_back(streams.inner("hessian"));
  CurvatureProducts products(oracle, request, options_.curvature);
  const Tensor p = oracle.outer_gradients(at.after, at.x, streams.outer("linear")).w;

  if (series) {
    return neumann_series([&](const Tensor& u, int64_t k) { return products(u, k); }, p,
                          {.terms = options_.terms, .rate = options_.linear_rate});
  }
  KrylovSolveOptions cg;
  cg.max_iterations = options_.terms;
  cg.relative_tolerance = options_.relative_tolerance;
  return conjugate_gradient(products.matrix(), p, cg);
}

}  // namespace bilevel
