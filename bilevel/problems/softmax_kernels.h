#pragma once
// The inner loops of softmax regression on plain memory, chosen once for the processor the program runs on.
//
// Everything that has a number per class is a table whose rows are `stride` apart, stride >= classes, and
// whose lanes beyond the classes are zero: a row is then a whole number of vector registers, and a non-zero
// feature touches one run of consecutive memory. The weights' table has one row per feature.

#include <cstdint>

namespace bilevel::softmax {

template <class T>
struct DenseRows {
  const T* values;
  int64_t features;
};

template <class T>
struct SparseRows {  // of a matrix, or of its transpose
  const int64_t* offsets;
  const int32_t* indices;
  const T* values;
};

// The rows `first` .. `first + count` of a batch: index[first], ..., or the matrix's own where it is null.
struct RowList {
  const int64_t* index;
  int64_t first, count;
  int64_t operator[](int64_t r) const { return index == nullptr ? first + r : index[first + r]; }
};

// A diagonal times a table, row j being scale[j * step] * table[j]; a null table is zero.
template <class T>
struct ScaledTable {
  const T* table = nullptr;
  const T* scale = nullptr;
  int64_t step = 0;
};

template <class T>
struct Kernels {
  // products[r] = start[row] + row * table, for each row of the list.
  void (*dense_product)(const DenseRows<T>& data, const RowList& rows, const T* table, int64_t stride,
                        T* products);
  void (*sparse_product)(const SparseRows<T>& data, const RowList& rows, const T* table, int64_t stride,
                         const ScaledTable<T>& start, T* products);
  // sum += row' * factors[r], over the rows of the list; the sparse one only into rows first .. last of sum.
  void (*dense_outer)(const DenseRows<T>& data, const RowList& rows, const T* factors, int64_t stride,
                      T* sum);
  void (*sparse_outer)(const SparseRows<T>& data, const RowList& rows, const T* factors, int64_t stride,
                       int64_t first, int64_t last, T* sum);
  // For rows 0 .. count: probabilities in the place of logits, and the cross entropies unless null.
  void (*softmax)(int64_t count, int64_t classes, int64_t stride, const int64_t* labels, T* logits,
                  T* cross_entropies);
  // residuals = weight * (probabilities - the label's unit row)
  void (*residuals)(int64_t count, int64_t stride, const int64_t* labels, const T* weights,
                    const T* probabilities, T* residuals);
  // With s the logits' derivative along a direction: slopes = that of the cross entropies, unless null;
  // curved = weight * (diag(p) - p p') s, unless null (it may be s's own memory).
  void (*curvature)(int64_t count, int64_t stride, const int64_t* labels, const T* weights,
                    const T* probabilities, const T* s, T* slopes, T* curved);
};

enum class Instructions { baseline, avx2, avx512 };
Instructions best_instructions();  // that this processor has and this build knows
const char* name_of(Instructions instructions);

int64_t stride_for(int64_t classes);
template <class T>
const Kernels<T>& kernels(int64_t stride, Instructions instructions = best_instructions());

// One table each, in a file that is compiled for those instructions.
template <class T>
const Kernels<T>& baseline_kernels(int64_t stride);
template <class T>
const Kernels<T>& avx2_kernels(int64_t stride);
template <class T>
const Kernels<T>& avx512_kernels(int64_t stride);

}  // namespace bilevel::softmax
