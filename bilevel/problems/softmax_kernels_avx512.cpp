// The loops for processors with AVX-512. Headers come before the pragma: what they define is for every
// processor.

#include <cstdint>
#include <utility>

#include "bilevel/problems/softmax_kernels.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma,prefer-vector-width=512")
#endif
#define BILEVEL_VECTOR_BYTES 64
#include "bilevel/problems/softmax_loops.h"

namespace bilevel::softmax {

template <>
const Kernels<float>& avx512_kernels(int64_t stride) {
  return kernels_for<float>(stride);
}
template <>
const Kernels<double>& avx512_kernels(int64_t stride) {
  return kernels_for<double>(stride);
}

}  // namespace bilevel::softmax

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
