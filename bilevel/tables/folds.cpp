#include "bilevel/tables/folds.h"

#include <ATen/ATen.h>

namespace bilevel {

Tensor stratified_folds(const Tensor& labels, int64_t classes, int64_t folds, Random& random) {
  Tensor fold = at::empty({labels.numel()}, at::kLong);
  int64_t dealt = 0;
  for (int64_t k = 0; k < classes; ++k) {
    const Tensor rows = labels.eq(k).nonzero().squeeze(1);
    const Tensor order = rows.index_select(0, random.permutation(rows.numel()));
    fold.index_put_({order}, (at::arange(rows.numel(), at::kLong) + dealt).remainder(folds));
    dealt += rows.numel();  // the next class goes on where this one ended
  }
  return fold;
}

}  // namespace bilevel
