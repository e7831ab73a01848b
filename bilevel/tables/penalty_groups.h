#pragma once
// Which penalties of a table are the same number: all of one column, of a group of columns, or of one class's
// coefficients of a column.

#include <cstdint>

#include "bilevel/core/tensor.h"

namespace bilevel {

class PenaltyGroups {
 public:
  // `of_column`: int64, the group of each column, 0 .. groups-1; not defined = each column is its own.
  // `classes` above 0: one number for each group and class.
  PenaltyGroups(int64_t columns, const Tensor& of_column, int64_t classes);

  int64_t count() const { return count_; }  // of different numbers
  // Logarithms of the penalties, columns or columns x classes, from one number per group.
  Tensor spread(const Tensor& numbers) const;
  // The other way for a derivative: the sum over each group.
  Tensor gathered(const Tensor& by_logarithms) const;

 private:
  Tensor group_;  // columns, or columns x classes
  int64_t count_;
};

}  // namespace bilevel
