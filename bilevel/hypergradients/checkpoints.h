#pragma once
// Which iterates to keep when not all can be: every sqrt(T)-th, or the binomial schedule (Revolve, Griewank
// and Walther 2000), which needs the fewest recomputed steps that any schedule with so many slots can have.

#include <cstdint>
#include <vector>

namespace bilevel {

// 0, s, 2s, ... with s = ceil(sqrt(steps)).
std::vector<int64_t> sqrt_checkpoints(int64_t steps);
int64_t sqrt_segment(int64_t steps);

// To reverse `steps` steps from a stored state with `slots` stored states in all, that one included: how many
// steps to advance before storing the next state. slots >= 2, steps >= 2.
int64_t binomial_split(int64_t steps, int64_t slots);
// The states that the first forward sweep stores, the start included.
std::vector<int64_t> binomial_checkpoints(int64_t steps, int64_t slots);
// How many steps are recomputed in all after the first sweep has stored `binomial_checkpoints`.
int64_t binomial_recomputed(int64_t steps, int64_t slots);

}  // namespace bilevel
