#pragma once
// Is every entry a finite number? One pass in the usual case: a finite sum has finite terms. Only a sum that
// is not finite, which large terms can give too, is looked at entry by entry.

#include "bilevel/core/tensor.h"

namespace bilevel {

bool all_finite(const Tensor& t);

}  // namespace bilevel
