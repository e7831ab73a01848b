#pragma once
// The inner loops of softmax regression on plain memory, chosen once for the processor the program runs on.
//
// What has a number per example and class is a table whose rows, one per example, are `stride` apart,
// stride >= classes, and zero beyond the classes: a row is then a whole number of vector registers. What has
// a number per feature and class, as the weights, is
//   - for sparse data such a table too, with a row per feature: a non-zero feature touches one run of memory;
//   - for dense data one row per class, `row_length` apart (padded_features) and zero beyond the features:
//     vectors run along the features, and no lane is lost where the classes do not fill a register.

#include <cstddef>
#include <cstdint>

namespace bilevel::softmax {

template <class T>
struct DenseRows {
  const T* values;
  int64_t rows, features;
};

template <class T>
struct SparseRows {
  const int64_t* offsets;
  const int32_t* indices;
  const T* values;
  const uint16_t* short_indices = nullptr;  // as FeatureMatrix has them, read by products instead; or null
};

template <class T>
struct SparseColumns {  // of blocks of rows, as FeatureMatrix::ColumnBlocks
  const int64_t* offsets;
  const int32_t* rows;  // one of the two is null
  const uint16_t* short_rows;
  const T* values;
  int64_t features, blocks, rows_at_once;
};

// The rows `first` .. `first + count` of a batch: index[first], ..., or the matrix's own where it is null.
struct RowList {
  const int64_t* index;
  int64_t first, count;
  int64_t operator[](int64_t r) const { return index == nullptr ? first + r : index[first + r]; }
};

// A diagonal times a table, feature j's numbers being scale[j * step] times the table's; a null table is
// zero.
template <class T>
struct ScaledTable {
  const T* table = nullptr;
  const T* scale = nullptr;
  int64_t step = 0;
};

template <class T>
struct Kernels {
  // products[r] = row * table, for each row of the list. The dense kernels ask for half of the rows `next`
  // each, so that memory is read while they calculate: what follows them may then begin at once.
  void (*dense_product)(const DenseRows<T>& data, const RowList& rows, const RowList& next, int64_t classes,
                        const T* table, int64_t stride, T* products);
  void (*sparse_product)(const SparseRows<T>& data, const RowList& rows, const T* table, int64_t stride,
                         T* products);
  // With two tables, the same bits by one reading of the rows.
  void (*sparse_products)(const SparseRows<T>& data, const RowList& rows, const T* table,
                          const T* second_table, int64_t stride, T* products, T* second_products);
  // sum += row' * factors[r], over the rows of the list; the sparse one only into rows first .. last of sum.
  void (*dense_outer)(const DenseRows<T>& data, const RowList& rows, const RowList& next, int64_t classes,
                      const T* factors, int64_t stride, T* sum);
  void (*sparse_outer)(const SparseRows<T>& data, const RowList& rows, const T* factors, int64_t stride,
                       int64_t first, int64_t last, T* sum);
  // sum = start + all rows' times factors, for the features first .. last.
  void (*sparse_transposed)(const SparseColumns<T>& data, const T* factors, int64_t stride, int64_t first,
                            int64_t last, const ScaledTable<T>& start, T* sum);
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
inline int64_t padded_features(int64_t features) { return (features + 31) / 32 * 32; }
constexpr int64_t most_dense_rows = 64;  // in the list of a dense kernel
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
