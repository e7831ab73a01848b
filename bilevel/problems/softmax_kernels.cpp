// The loops for any processor, and the choice among all of them.

#include "bilevel/problems/softmax_kernels.h"

#include <cstdint>
#include <utility>

#define BILEVEL_VECTOR_BYTES 16
#include "bilevel/core/require.h"
#include "bilevel/problems/softmax_loops.h"

namespace bilevel::softmax {

template <>
const Kernels<float>& baseline_kernels(int64_t stride) {
  return kernels_for<float>(stride);
}
template <>
const Kernels<double>& baseline_kernels(int64_t stride) {
  return kernels_for<double>(stride);
}

Instructions best_instructions() {
#if defined(__x86_64__)
  static const Instructions best = [] {
    // The first two also say that the operating system saves the registers.
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
      return Instructions::avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Instructions::avx2;
    return Instructions::baseline;
  }();
  return best;
#else
  return Instructions::baseline;
#endif
}

const char* name_of(Instructions instructions) {
  switch (instructions) {
    case Instructions::avx512:
      return "avx512";
    case Instructions::avx2:
      return "avx2";
    default:
      return "baseline";
  }
}

// Few lanes are wasted, and a row is one or two vector registers of the widest kind. 20 is 20 Newsgroups:
// there a table of weights needs no copy.
int64_t stride_for(int64_t classes) {
  require_at_least("classes", classes, 1);
  for (const int64_t stride : {4, 8, 16, 20, 32}) {
    if (classes <= stride) return stride;
  }
  return (classes + 31) / 32 * 32;
}

template <class T>
const Kernels<T>& kernels(int64_t stride, Instructions instructions) {
#if defined(__x86_64__)
  if (instructions == Instructions::avx512) return avx512_kernels<T>(stride);
  if (instructions == Instructions::avx2) return avx2_kernels<T>(stride);
#endif
  return baseline_kernels<T>(stride);
}
template const Kernels<float>& kernels(int64_t stride, Instructions instructions);
template const Kernels<double>& kernels(int64_t stride, Instructions instructions);

}  // namespace bilevel::softmax
