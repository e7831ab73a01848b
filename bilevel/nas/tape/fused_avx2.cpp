// The loops for processors with AVX2 and FMA. Headers come before the pragma: what they define is for every
// processor.

#include <cstddef>
#include <cstdint>

#include "bilevel/nas/tape/fused_cpu.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define BILEVEL_VECTOR_BYTES 32
#include "bilevel/nas/tape/fused_loops.h"

namespace bilevel::nas::fused {

template <>
const Loops<float>& avx2_loops() {
  static const Loops<float> all = loops_here<float>();
  return all;
}
template <>
const Loops<double>& avx2_loops() {
  static const Loops<double> all = loops_here<double>();
  return all;
}

}  // namespace bilevel::nas::fused

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
