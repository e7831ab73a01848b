// xoshiro256** 1.0 and splitmix64 (Blackman and Vigna, "Scrambled linear pseudorandom number generators",
// 2018), and normals by Marsaglia's polar method. Our own because LibTorch's generators keep 32 bits of a
// seed on the CPU and do not promise the same values from one version to the next.
#include "bilevel/core/random.h"
#include "bilevel/core/require.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace bilevel {
namespace {

constexpr uint64_t golden = 0x9e3779b97f4a7c15;  // splitmix64's increment

uint64_t finalise(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

void require_floating(at::ScalarType type, const char* what) {
  if (!at::isFloatingType(type)) {
    throw std::invalid_argument(fmt::format(
        "Random::{}: options.dtype = {}: must be a floating type; use below() or permutation() for integers",
        what, at::toString(type)));
  }
}

template <typename Draw>
Tensor filled(at::IntArrayRef sizes, Draw draw) {
  Tensor values = at::empty(sizes, at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
  double* data = values.data_ptr<double>();
  const int64_t count = values.numel();
  for (int64_t i = 0; i < count; ++i) data[i] = draw();
  return values;
}

// The largest number below 1, which rounding a double to the type could overstep.
double largest_below_one(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return 1 - 0x1p-24;
    case at::kHalf:
      return 1 - 0x1p-11;
    case at::kBFloat16:
      return 1 - 0x1p-8;
    default:
      return 1 - 0x1p-53;
  }
}

}  // namespace

uint64_t mix_seeds(uint64_t a, uint64_t b) { return finalise(finalise(a + golden) + b + golden); }

uint64_t named_seed(uint64_t root, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return mix_seeds(root, hash);
}

Random::Random(uint64_t seed) {
  // Four successive outputs of splitmix64 are never all zero, which is the one state xoshiro cannot leave.
  for (uint64_t& word : state_) word = finalise(seed += golden);
}

uint64_t Random::next() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double Random::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  double a = 0;
  double b = 0;
  double square = 0;
  do {
    a = 2 * uniform() - 1;
    b = 2 * uniform() - 1;
    square = a * a + b * b;
  } while (square >= 1 || square == 0);
  const double factor = std::sqrt(-2 * std::log(square) / square);
  spare_ = b * factor;
  has_spare_ = true;
  return a * factor;
}

int64_t Random::below(int64_t bound) {
  require_at_least("Random::below: bound", bound, 1);
  // Draw as many bits as bound-1 has and reject what is too large: no bias, fewer than two draws on average.
  const uint64_t largest = static_cast<uint64_t>(bound) - 1;
  const int unused_bits = std::countl_zero(largest | 1);
  uint64_t value = 0;
  do {
    value = next() >> unused_bits;
  } while (value > largest);
  return static_cast<int64_t>(value);
}

Tensor Random::uniform(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  require_floating(type, "uniform");
  Tensor values = filled(sizes, [this] { return uniform(); });
  return values.clamp_max_(largest_below_one(type)).to(options.device(), type);
}

Tensor Random::normal(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  require_floating(type, "normal");
  return filled(sizes, [this] { return normal(); }).to(options.device(), type);
}

Tensor Random::permutation(int64_t count) {
  require_at_least("Random::permutation: count", count, 0);
  Tensor order = at::arange(count, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
  int64_t* data = order.data_ptr<int64_t>();
  for (int64_t i = count - 1; i > 0; --i) std::swap(data[i], data[below(i + 1)]);  // Fisher-Yates
  return order;
}

}  // namespace bilevel
