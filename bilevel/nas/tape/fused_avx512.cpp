// The loops for processors with AVX-512. Headers come before the pragma: what they define is for every
// processor.

#include <cstddef>
#include <cstdint>

#include "bilevel/nas/tape/fused_cpu.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma,prefer-vector-width=512")
#endif
#define BILEVEL_VECTOR_BYTES 64
#include "bilevel/nas/tape/fused_loops.h"

namespace bilevel::nas::fused {

template <>
const Loops<float>& avx512_loops() {
  static const Loops<float> all = loops_here<float>();
  return all;
}
template <>
const Loops<double>& avx512_loops() {
  static const Loops<double> all = loops_here<double>();
  return all;
}

}  // namespace bilevel::nas::fused

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
