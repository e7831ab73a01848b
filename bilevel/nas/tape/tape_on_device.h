#pragma once

#include "bilevel/core/tensor.h"
#include "bilevel/nas/tape/tape.h"

namespace bilevel::nas {

// A tape with the constants that its passes read, on the device and in the type of `tensors`.
struct TapeOnDevice {
  TapeOnDevice(Tape tape, const at::TensorOptions& tensors);

  Tape tape;
  // Convolutions' weights are kept channels last inside: packed = w[to_packed], w = packed[to_flat].
  Tensor to_packed, to_flat;
  // choices x all Mix operations' sums: which of them belong to which weight of the mixture.
  Tensor choice_of_sum;
};

}  // namespace bilevel::nas
