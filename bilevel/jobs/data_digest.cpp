#include "bilevel/jobs/data_digest.h"

#include <ATen/ATen.h>

#include "bilevel/data/sha256.h"
#include "bilevel/data/xxhash.h"

namespace bilevel {

std::string data_digest(const std::vector<Tensor>& contents, const std::vector<int64_t>& sizes) {
  // A tensor is a fast hash of its bytes: SHA-256 of all of them would take a second for CIFAR-10.
  Sha256 digest;
  const auto add = [&](const std::vector<int64_t>& numbers) {
    const auto length = static_cast<int64_t>(numbers.size());
    digest.add({reinterpret_cast<const char*>(&length), sizeof length});
    digest.add({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)});
  };
  for (const Tensor& set : contents) {
    if (!set.defined()) {
      add({});
      continue;
    }
    const Tensor here = set.to(at::kCPU).contiguous();
    const auto bytes = static_cast<size_t>(here.numel()) * static_cast<size_t>(here.element_size());
    add(here.sizes().vec());
    add({static_cast<int64_t>(here.scalar_type()),
         static_cast<int64_t>(xxhash64({static_cast<const char*>(here.data_ptr()), bytes}))});
  }
  add(sizes);
  return digest.hex();
}

std::vector<Tensor> contents_of(const Features& features) {
  if (!features.is_sparse()) return {features.dense};
  return {features.sparse.row_start, features.sparse.column, features.sparse.value};
}

std::vector<Tensor> contents_of(const FeatureMatrix& features) {
  if (!features.is_sparse()) return {features.dense()};
  const FeatureMatrix::Compressed& rows = features.by_rows();
  return {rows.offsets, rows.indices, rows.values};
}

}  // namespace bilevel
