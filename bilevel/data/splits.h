#pragma once
// Which examples train, which validate and which test: disjoint lists of positions, drawn once from a seed,
// the same on every machine.

#include <cstdint>

#include "bilevel/core/tensor.h"

namespace bilevel {

enum class Balance {
  equal,         // as many of each class: sizes / classes, the first classes taking what is left over
  proportional,  // each class's share as in the whole set, by largest remainders
  none           // drawn without a look at the labels
};

struct SplitSizes {
  int64_t train = 0;
  int64_t valid = 0;
  int64_t test = 0;
};

struct Splits {
  Tensor train, valid, test;  // int64 positions, CPU, in random order
};

// `labels`: int64, 0 to classes - 1. Throws std::invalid_argument naming the class, what it needs and what it
// has, if a class has too few examples.
Splits make_splits(const Tensor& labels, int64_t classes, const SplitSizes& sizes, Balance balance,
                   uint64_t seed);

}  // namespace bilevel
