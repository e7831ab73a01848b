#pragma once
// Which fold each row belongs to: every class is dealt out evenly, and the folds differ by at most one row.

#include <cstdint>

#include "bilevel/core/random.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

// int64, 0 .. folds-1, one for each label. `labels`: int64, 0 .. classes-1.
Tensor stratified_folds(const Tensor& labels, int64_t classes, int64_t folds, Random& random);

}  // namespace bilevel
