#pragma once
// The loops of the CPU's passes over ranges of pixels or images, chosen once for the processor that the
// program runs on.

#include <cstdint>

#include "bilevel/nas/tape/fused.h"

namespace bilevel::nas::fused {

template <typename T>
struct Loops {
  // Pixels begin .. end of what fused.h describes; sums are added to.
  void (*statistics)(const Statistics<T>& work, int which, bool tangent, int64_t begin, int64_t end,
                     double* sums);  // 2 x channels
  void (*mix)(const Mixing<T>& work, bool tangent, int64_t begin, int64_t end);
  void (*gather)(const Gathering<T>& work, bool tangent, int64_t begin, int64_t end,
                 double* sums);  // rows x channels; null = none
  void (*spread)(const Spreading<T>& work, bool tangent, int64_t begin, int64_t end);
  // One image.
  void (*pool)(const Pooling<T>& work, int64_t image, T* scratch);  // five rows of scratch
  void (*depthwise)(const Depthwise<T>& work, int64_t image);
  void (*depthwise_in_image)(const Depthwise<T>& work, int64_t image);
  void (*depthwise_in_weights)(const Depthwise<T>& work, int64_t first_image, int64_t end_image,
                               double* sums);  // outputs x kernel x kernel
};

// One table each, in a file that is compiled for those instructions.
template <typename T>
const Loops<T>& baseline_loops();
template <typename T>
const Loops<T>& avx2_loops();
template <typename T>
const Loops<T>& avx512_loops();

}  // namespace bilevel::nas::fused
