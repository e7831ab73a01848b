#pragma once
// Random numbers that are the same on every machine and with every LibTorch: named streams of one root seed,
// drawn on the CPU. There is no global generator and no clock.

#include <array>
#include <cstdint>
#include <string_view>

#include "bilevel/core/tensor.h"

namespace bilevel {

// A good 64-bit mix of two words (splitmix64's finaliser): neighbouring seeds give unrelated streams. The
// order of the two matters.
uint64_t mix_seeds(uint64_t a, uint64_t b);
// The seed of the stream `name` under `root`.
uint64_t named_seed(uint64_t root, std::string_view name);

class Random {
 public:
  explicit Random(uint64_t seed);
  uint64_t next();               // 64 random bits (xoshiro256**)
  double uniform();              // [0, 1), 53 bits
  double normal();               // mean 0, variance 1
  int64_t below(int64_t bound);  // 0 .. bound-1 without modulo bias; bound >= 1
  // Tensors of a floating dtype, drawn in double on the CPU and then converted, so that every dtype and
  // device sees the same values up to rounding. Uniform ones stay below 1 after the rounding too: log(1 - u)
  // is finite.
  Tensor uniform(at::IntArrayRef sizes, const at::TensorOptions& options);
  Tensor normal(at::IntArrayRef sizes, const at::TensorOptions& options);
  Tensor permutation(int64_t count);  // of 0 .. count-1; int64, CPU

 private:
  std::array<uint64_t, 4> state_{};
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace bilevel
