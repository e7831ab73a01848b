#pragma once
// What a rank takes of a batch: a piece of it, in order. The pieces of all ranks are as long as each other,
// or the first ones longer by one; with fewer examples than ranks some are empty.

#include <cstdint>

#include "bilevel/core/batch.h"

namespace bilevel {

struct RankSlice {
  Batch batch = {};   // of this rank's examples; not to be used where there are none
  int64_t begin = 0;  // in the batch
  int64_t count = 0;  // its examples
  double weight = 0;  // its part of the whole batch
  bool empty() const { return count == 0; }
};

// `population` = how many examples the full set holds.
RankSlice slice_of(const Batch& batch, int64_t population, int rank, int size);

}  // namespace bilevel
