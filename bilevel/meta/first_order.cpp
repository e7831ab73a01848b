#include "bilevel/meta/first_order.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace bilevel::meta {

Hypergradient FirstOrder::compute(Oracle& oracle, const HypergradientRequest& request) const {
  if (!request.inner.start_is_learned) {
    throw std::invalid_argument("first-order: the problem's start is not learned, so nothing reaches x");
  }
  const auto outer = oracle.outer_gradients(request.inner.final.w, request.x, request.outer);
  Hypergradient result = estimate_from(outer);
  result.value = outer.x + oracle.start_pullback(request.x, outer.w);
  result.status = Status::ok;
  return result;
}

}  // namespace bilevel::meta
