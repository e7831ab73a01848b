// The loops for any processor.

#include <cstddef>
#include <cstdint>

#include "bilevel/nas/tape/fused_cpu.h"

#define BILEVEL_VECTOR_BYTES 16
#include "bilevel/nas/tape/fused_loops.h"

namespace bilevel::nas::fused {

template <>
const Loops<float>& baseline_loops() {
  static const Loops<float> all = loops_here<float>();
  return all;
}
template <>
const Loops<double>& baseline_loops() {
  static const Loops<double> all = loops_here<double>();
  return all;
}

}  // namespace bilevel::nas::fused
