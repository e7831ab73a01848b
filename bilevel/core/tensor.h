#pragma once
// The one tensor type of the library, by the narrowest header that declares it.

#include <ATen/core/Tensor.h>

namespace bilevel {
using at::Tensor;
}  // namespace bilevel
