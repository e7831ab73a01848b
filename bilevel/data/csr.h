#pragma once
// Sparse matrices by rows (CSR), as plain data: what the svmlight and newsgroup readers give and the sparse
// softmax regression reads.

#include <cstdint>
#include <string_view>

#include "bilevel/core/tensor.h"

namespace bilevel {

struct SparseMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  Tensor row_start;  // int64, rows + 1: where each row begins in the two below
  Tensor column;     // int32, strictly increasing within a row
  Tensor value;      // float or double, finite

  int64_t nonzeros() const { return value.defined() ? value.numel() : 0; }
  // Throws std::invalid_argument beginning with `what` unless all of the above holds, contiguous on the CPU.
  // Every function below expects a valid matrix.
  void validate(std::string_view what = "sparse matrix") const;
};

// Throws std::invalid_argument for a matrix of more than `largest_bytes` when dense.
Tensor to_dense(const SparseMatrix& matrix, int64_t largest_bytes = int64_t{1} << 30);
SparseMatrix from_dense(const Tensor& matrix);  // float or double, two dimensions; keeps what is not zero
// The matrix by columns: row j of the result holds what column j had (CSC). Rows keep their order.
SparseMatrix transposed(const SparseMatrix& matrix);
SparseMatrix select_rows(const SparseMatrix& matrix, const Tensor& index);  // int64; repeats are allowed
SparseMatrix to_dtype(const SparseMatrix& matrix, at::ScalarType dtype);
// Every row divided by its Euclidean norm; empty rows stay empty.
SparseMatrix unit_rows(const SparseMatrix& matrix);
Tensor document_frequency(const SparseMatrix& matrix);  // int64: in how many rows each column is stored
// Multiplies column j by scale[j] (double).
SparseMatrix scale_columns(const SparseMatrix& matrix, const Tensor& scale);

}  // namespace bilevel
