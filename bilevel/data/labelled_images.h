#pragma once
// Images with their labels: as files hold them, bytes on the CPU, or ready for a network. The type for both.

#include "bilevel/core/tensor.h"

namespace bilevel {

struct LabelledImages {
  Tensor images;  // N x channels x height x width
  Tensor labels;  // int64, N
};

}  // namespace bilevel
