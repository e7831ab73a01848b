#pragma once
// How many of the rows of an index have each label.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace bilevel::test {

inline std::vector<int64_t> class_counts(const at::Tensor& labels, const at::Tensor& index, int64_t classes) {
  const at::Tensor count = at::bincount(labels.index_select(0, index), {}, classes);
  return {count.data_ptr<int64_t>(), count.data_ptr<int64_t>() + classes};
}

}  // namespace bilevel::test
