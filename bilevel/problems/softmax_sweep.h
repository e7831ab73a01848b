#pragma once
// One sweep over a batch's examples: the logits (and their derivative along a direction), something done to
// each example's numbers, and the sum of outer products with the features. The data is read once: while a
// block of rows is in the cache, all three are done to it. Rows are neither copied nor gathered.
//
// Threads take equal shares of the rows and sum into tables of their own, which are added in a fixed order,
// so that the same number of threads gives the same bits. Sparse data is swept twice where all of it is asked
// for, by rows and by columns: adding to the sums' table at every non-zero costs three times what reading the
// non-zeros again does, and no thread needs a table of its own.

#include <cstdint>
#include <functional>

#include "bilevel/core/tensor.h"
#include "bilevel/problems/feature_matrix.h"
#include "bilevel/problems/softmax_kernels.h"

namespace bilevel::softmax {

template <class T>
struct Sweep {
  const FeatureMatrix& data;  // of type T
  const int64_t* index;       // the batch's rows, checked; null = all
  int64_t count;              // of rows in the batch
  int64_t classes;
  const T* tables[2] = {};    // as softmax_tables.h makes them for this data; null = not wanted
  ScaledTable<T> start = {};  // what the sum of outer products starts from
  T* sum = nullptr;           // a table too; null = not wanted

  // Called for blocks of the batch's positions first .. first + count, which cover it once, in any order and
  // by any thread: reads the products with tables[0] and tables[1] (which it may overwrite), writes the
  // factors of the outer products. All three are the block's own rows, stride_for(classes) apart.
  std::function<void(int64_t first, int64_t rows, T* products, T* more_products, T* factors)> block = {};
};

template <class T>
void run(const Sweep<T>& sweep);

}  // namespace bilevel::softmax
