#pragma once
// Named shapes <-> one flat vector. A network's weights are one vector here; `split` gives the shaped views
// in one split_with_sizes call, because one `narrow` per tensor costs its own node in the graph and is far
// slower.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

class Layout {
 public:
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    int64_t size = 0;    // product of the shape
    int64_t offset = 0;  // where the entry begins in the flat vector
  };

  Layout() = default;
  // Adds an entry and returns its position. Throws std::invalid_argument on a repeated name or a negative
  // size.
  int64_t add(std::string name, std::vector<int64_t> shape);

  int64_t size() const { return size_; }  // of the flat vector
  const std::vector<Entry>& entries() const { return entries_; }
  int64_t find(const std::string& name) const;  // position; throws std::invalid_argument naming what exists

  std::vector<Tensor> split(const Tensor& flat) const;       // shaped views, differentiable
  Tensor flatten(const std::vector<Tensor>& tensors) const;  // the inverse of split
  Tensor repeat_per_entry(const Tensor& per_entry) const;    // (entries) -> (size), differentiable

 private:
  std::vector<Entry> entries_;
  std::vector<int64_t> sizes_;
  int64_t size_ = 0;
};

}  // namespace bilevel
