#pragma once
// A user's table as softmax regression on it should see it: every column with mean 0 and deviation 1, and a
// column of ones for the intercept, which no penalty holds. A penalty then treats a length in metres and a
// price in cents alike, and a solver needs few steps. Coefficients are given back in the user's units.
//
// Moving a column moves only the intercept, which is free, so centring changes no answer: a sparse table is
// treated like a dense one, as long as its dense form fits into memory.

#include <cstdint>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/feature_files.h"

namespace bilevel {

// The most numbers of a table's dense form: 256 MiB, of which the folds keep copies.
constexpr int64_t largest_table = int64_t{1} << 25;

class TableScale {
 public:
  // Of the columns of these rows, together; the parts have as many columns each. Without standardising every
  // mean is 0 and every deviation 1. Throws std::invalid_argument where there are no rows, or columns differ.
  TableScale(const std::vector<Features>& parts, bool standardize);

  // Rows x (columns + 1) in double precision, the last column ones. A column that is constant in the rows
  // above becomes zero, whatever it is here: there is nothing to learn a coefficient from.
  Tensor scaled(const Features& rows) const;
  // (columns + 1) x classes, as it is for scaled(rows), for the rows as they are given. The intercept stays
  // last.
  Tensor in_users_units(const Tensor& weights) const;

  const Tensor& mean() const { return mean_; }
  const Tensor& deviation() const { return deviation_; }  // infinite for a constant column

 private:
  Tensor mean_, deviation_;
};

}  // namespace bilevel
