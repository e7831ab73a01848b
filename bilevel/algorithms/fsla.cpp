#include "bilevel/algorithms/fsla.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {

void FslaOptions::validate() const {
  storm.validate("fsla");
  if (linear_rate != 0) require_positive("fsla", "linear_rate", linear_rate);
  if (v_at != "before" && v_at != "after") {
    throw std::invalid_argument(fmt::format("fsla: v_at = {}: must be before or after", v_at));
  }
  curvature.validate();
}

const Fields<FslaOptions>& FslaOptions::fields() {
  static const Fields<FslaOptions> table = [] {
    using O = FslaOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.storm; }, StormOptions::fields());
    add_linear_rate(
        f, [](O & o) -> auto& { return o.linear_rate; });
    f.add(
         "v_at", [](O & o) -> auto& { return o.v_at; },
         "take v's step at the w before (line 7 of the paper) or after (Eq. 10) the inner step")
        .one_of({"before", "after"});
    f.include(
        [](O & o) -> auto& { return o.curvature; }, matrix_fields());
    return f;
  }();
  return table;
}

Fsla::Fsla(const FslaOptions& options) : StormLoop(options.storm, "fsla"), options_(options) {
  options_.validate();
  if (options_.linear_rate == 0) options_.linear_rate = options_.storm.inner_rate;
}

LinearResult Fsla::next_v(Oracle& oracle, const LinearPoint& at, Streams& streams) const {
  Trajectory point;
  point.final.w = options_.v_at == "before" ? at.before : at.after;
  HypergradientRequest request{.x = at.x, .inner = point};
  request.hessian = {streams.inner("hessian")};
  CurvatureProducts products(oracle, request, options_.curvature);
  const Tensor p = oracle.outer_gradients(point.final.w, at.x, streams.outer("linear")).w;

  LinearResult result;
  result.solution = descend(at.v, products(at.v, 0) - p, options_.linear_rate * at.factor);
  result.status = Status::ok;
  return result;
}

}  // namespace bilevel
