#include "bilevel/problems/batch_rows.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

namespace bilevel {
namespace {

void check_index(const Tensor& index, int64_t population) {
  if (index.dim() != 1 || index.scalar_type() != at::kLong || !index.device().is_cpu()) {
    throw std::invalid_argument(
        fmt::format("batch.index must be a vector of int64 on the CPU, but is {}-dimensional of {} on {}",
                    index.dim(), c10::toString(index.scalar_type()), index.device().str()));
  }
  if (index.numel() == 0) {
    throw std::invalid_argument("batch.index is empty: a batch holds at least one example (undefined = all)");
  }
  const Tensor contiguous = index.contiguous();
  const int64_t* data = contiguous.data_ptr<int64_t>();
  for (int64_t i = 0; i < contiguous.numel(); ++i) {
    if (data[i] < 0 || data[i] >= population) {
      throw std::invalid_argument(fmt::format(
          "batch.index[{}] = {} is out of range: the set holds {} examples", i, data[i], population));
    }
  }
}

// Examples that follow each other, as a rank's slice of the full set does.
bool is_one_piece(const Tensor& index) {
  const int64_t count = index.numel();
  const Tensor contiguous = index.contiguous();
  const int64_t* data = contiguous.data_ptr<int64_t>();
  if (data[count - 1] - data[0] != count - 1) return false;
  for (int64_t i = 1; i < count; ++i) {
    if (data[i] != data[0] + i) return false;
  }
  return true;
}

}  // namespace

Tensor batch_rows(const Tensor& data, const Batch& batch) {
  if (batch.is_full()) return data;
  check_index(batch.index, data.size(0));
  if (is_one_piece(batch.index)) {  // nothing to copy
    return data.narrow(0, batch.index[0].item<int64_t>(), batch.index.numel());
  }
  return data.index_select(0, batch.index.to(data.device()));
}

}  // namespace bilevel
