// The loops for processors with AVX2 and FMA. Headers come before the pragma: what they define is for every
// processor.

#include <cstdint>
#include <utility>

#include "bilevel/problems/softmax_kernels.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define BILEVEL_VECTOR_BYTES 32
#include "bilevel/problems/softmax_loops.h"

namespace bilevel::softmax {

template <>
const Kernels<float>& avx2_kernels(int64_t stride) {
  return kernels_for<float>(stride);
}
template <>
const Kernels<double>& avx2_kernels(int64_t stride) {
  return kernels_for<double>(stride);
}

}  // namespace bilevel::softmax

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
