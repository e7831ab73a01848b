#pragma once
// A product with a second derivative as a difference of first ones, as DARTS and iDARTS take the cross
// product. It evaluates on either side of w and never writes to w.

#include <functional>

#include "bilevel/core/tensor.h"

namespace bilevel {

class FiniteChecks;  // core/finite.h

// [gradient(w + e v) - gradient(w - e v)] / (2 e) with e = step / |v|; undefined where v = 0, NaN where
// v is not finite. Checks that put looks at the device off (Oracle::finite) make that 0 where v = 0.
Tensor central_difference(const std::function<Tensor(const Tensor& w)>& gradient, const Tensor& w,
                          const Tensor& v, double step, const FiniteChecks* checks = nullptr);

}  // namespace bilevel
