#pragma once
// Examples x features, as the closed forms of softmax regression read them: dense, or compressed by rows
// (CSR) with the zeros left out. A dense matrix with many zeros is compressed by itself. A compressed one is
// kept by columns too: a sum over examples then writes every feature once, in order (softmax_sweep.h).

#include <cstdint>

#include "bilevel/core/tensor.h"

namespace bilevel {

class FeatureMatrix {
 public:
  enum class Storage { automatic, dense, sparse };
  struct Compressed {
    Tensor offsets;          // int64, one more than there are rows
    Tensor indices, values;  // int32 and the matrix's type; indices ascend within a row
    // 8 times the index, as unsigned numbers of 16 bits: a quarter less to read. Undefined for more features
    // than fit.
    Tensor short_indices;
  };
  // The columns of each block of rows, one block after another: what a sum over the block's examples reads is
  // then a table of factors that fits a core's first cache, if the matrix is dense enough for long columns.
  struct ColumnBlocks {
    int64_t rows_at_once = 0;
    Tensor offsets;  // int64, one for each column of each block, and the end
    // Counted from the block's first and ascending within a column: int32, or 8 times as much in 16 bits
    // where they fit. The other is undefined.
    Tensor rows, short_rows;
    Tensor values;
    Tensor stored_before;  // int64: the non-zeros of all columns before each, and of all
  };

  // `values` is a float or double matrix on the CPU; its memory is shared where it stays dense. Automatic:
  // sparse where at most a third is not zero. Throws std::invalid_argument.
  static FeatureMatrix from_dense(const Tensor& values, Storage storage = Storage::automatic);
  // Compressed rows: `offsets` (int64, examples + 1), `columns` (int32 or int64, strictly ascending within a
  // row) and `values` (float or double). Throws std::invalid_argument naming the row that is wrong.
  static FeatureMatrix from_csr(const Tensor& offsets, const Tensor& columns, const Tensor& values,
                                int64_t features);

  FeatureMatrix to(at::ScalarType dtype) const;

  int64_t rows() const { return rows_; }
  int64_t features() const { return features_; }
  int64_t stored() const;  // numbers that a product reads: the non-zeros of a sparse matrix
  int64_t bytes() const;   // of one copy of them, with the indices that are read
  at::ScalarType dtype() const;
  bool is_sparse() const { return !dense_.defined(); }

  const Tensor& dense() const { return dense_; }
  const Compressed& by_rows() const { return by_rows_; }
  const ColumnBlocks& by_columns() const { return by_columns_; }

 private:
  int64_t rows_ = 0, features_ = 0;
  Tensor dense_;  // undefined = sparse
  Compressed by_rows_;
  ColumnBlocks by_columns_;
};

}  // namespace bilevel
