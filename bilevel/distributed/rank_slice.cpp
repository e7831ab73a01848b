#include "bilevel/distributed/rank_slice.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace bilevel {

RankSlice slice_of(const Batch& batch, int64_t population, int rank, int size) {
  const int64_t whole = batch.size(population), each = whole / size, rest = whole % size;
  const int64_t begin = rank * each + std::min<int64_t>(rank, rest), count = each + (rank < rest ? 1 : 0);
  RankSlice slice{.begin = begin, .count = count};
  slice.weight = static_cast<double>(count) / static_cast<double>(whole);
  slice.batch.seed = batch.seed;
  slice.batch.index = batch.is_full() ? at::arange(begin, begin + count, at::TensorOptions().dtype(at::kLong))
                                      : batch.index.narrow(0, begin, count);
  return slice;
}

}  // namespace bilevel
