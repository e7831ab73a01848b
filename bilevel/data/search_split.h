#pragma once
// Which training images feed the weights of a search and which its architecture: two disjoint lists of
// positions, from a file, such as the one published with NAS-Bench-201, or drawn from a seed.

#include <cstdint>
#include <string>

#include "bilevel/core/tensor.h"

namespace bilevel {

struct SearchSplitOptions {
  std::string file = {};   // empty: drawn from the seed
  int64_t train_size = 0;  // this many for the weights and as many for the architecture; 0 = half and half
  uint64_t seed = 0;

  void validate() const;  // throws std::invalid_argument naming the option, its value and the bound
};

struct SearchSplit {
  Tensor train, valid;  // int64 positions, CPU
};

// `labels`: int64, 0 to classes - 1, of all training images. With train_size, both lists take the same number
// of each class and the classes share as equally as what they have allows. Throws std::invalid_argument where
// there are fewer images than wanted.
SearchSplit make_search_split(const Tensor& labels, int64_t classes, const SearchSplitOptions& options);

// JSON with the lists "train" and "valid", in NAS-Bench-201's form {"train": ["int", ["0", "5", ...]], ...}
// or plain, {"train": [0, 5, ...], ...}, in the file's order. Throws std::runtime_error naming the list and
// the entry for a position that is no number, not below `images`, or there twice, be it in one list or in
// both.
SearchSplit read_search_split(const std::string& path, int64_t images);

}  // namespace bilevel
