#include "bilevel/hypergradients/checkpoints.h"

#include <algorithm>
#include <limits>

namespace bilevel {
namespace {

// binomial(slots + repeats, slots): the most steps that `slots` states can reverse when no step is taken more
// than `repeats` times. Saturates instead of overflowing.
int64_t reachable(int64_t slots, int64_t repeats) {
  if (repeats < 0) return 0;
  constexpr int64_t limit = std::numeric_limits<int64_t>::max() / 4;
  int64_t value = 1;
  const int64_t k = std::min(slots, repeats);
  for (int64_t i = 1; i <= k; ++i) {
    const int64_t factor = slots + repeats - k + i;
    if (value > limit / factor) return limit;
    value = value * factor / i;
  }
  return value;
}

// Steps recomputed by the recursion of reverse_binomial when the state at the begin is stored and nothing
// else.
int64_t recomputed_from_start(int64_t steps, int64_t slots) {
  if (steps <= 1) return 0;
  if (slots == 1) return steps * (steps - 1) / 2;
  const int64_t split = binomial_split(steps, slots);
  return split + recomputed_from_start(steps - split, slots - 1) + recomputed_from_start(split, slots);
}

}  // namespace

int64_t sqrt_segment(int64_t steps) {
  int64_t segment = 1;
  while (segment * segment < steps) ++segment;
  return segment;
}

std::vector<int64_t> sqrt_checkpoints(int64_t steps) {
  std::vector<int64_t> positions;
  const int64_t segment = sqrt_segment(steps);
  for (int64_t t = 0; t < steps; t += segment) positions.push_back(t);
  return positions;
}

int64_t binomial_split(int64_t steps, int64_t slots) {
  int64_t repeats = 1;
  while (reachable(slots, repeats) < steps) ++repeats;
  // Any split in this range is optimal (Griewank and Walther, Proposition 1); the upper end is always in it.
  const int64_t upper = std::min(reachable(slots, repeats - 1), steps - reachable(slots - 1, repeats - 1));
  return std::clamp<int64_t>(upper, 1, steps - 1);
}

std::vector<int64_t> binomial_checkpoints(int64_t steps, int64_t slots) {
  std::vector<int64_t> positions;
  if (steps <= 0) return positions;
  int64_t begin = 0;
  positions.push_back(begin);
  while (slots > 1 && steps - begin > 1) {
    begin += binomial_split(steps - begin, slots);
    --slots;
    positions.push_back(begin);
  }
  return positions;
}

int64_t binomial_recomputed(int64_t steps, int64_t slots) {
  if (steps <= 0) return 0;
  // The first sweep advances over every split for nothing more than the inner loop had to pay anyway.
  return recomputed_from_start(steps, slots) - binomial_checkpoints(steps, slots).back();
}

}  // namespace bilevel
