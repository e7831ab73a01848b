#include "bilevel/problems/softmax_sweep.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace bilevel::softmax {
namespace {

constexpr int64_t block_bytes = 192 << 10;  // of data: leaves room for the tables in a core's second cache
constexpr int64_t fewest_block_rows = 8, sparse_block_rows = 64;
constexpr int64_t share_at_least = 32;  // rows: less is not worth a thread

template <class T>
at::TensorOptions type_of() {
  return at::TensorOptions().dtype(std::is_same_v<T, float> ? at::kFloat : at::kDouble);
}

template <class T>
DenseRows<T> dense_rows(const FeatureMatrix& data) {
  return {data.dense().data_ptr<T>(), data.rows(), data.features()};
}

// LibTorch 1.13 has no unsigned type of 16 bits, so that a tensor of them is said to be signed.
const uint16_t* short_or_null(const Tensor& t) {
  return t.defined() ? static_cast<const uint16_t*>(t.data_ptr()) : nullptr;
}

template <class T>
SparseRows<T> rows_of(const FeatureMatrix& data) {
  const FeatureMatrix::Compressed& rows = data.by_rows();
  return {.offsets = rows.offsets.data_ptr<int64_t>(),
          .indices = rows.indices.data_ptr<int32_t>(),
          .values = rows.values.data_ptr<T>(),
          .short_indices = short_or_null(rows.short_indices)};
}

template <class T>
SparseColumns<T> columns_of(const FeatureMatrix& data) {
  const FeatureMatrix::ColumnBlocks& columns = data.by_columns();
  return {.offsets = columns.offsets.data_ptr<int64_t>(),
          .rows = columns.rows.defined() ? columns.rows.data_ptr<int32_t>() : nullptr,
          .short_rows = short_or_null(columns.short_rows),
          .values = columns.values.data_ptr<T>(),
          .features = data.features(),
          .blocks = (columns.offsets.numel() - 1) / data.features(),
          .rows_at_once = columns.rows_at_once};
}

// Calls function(share, first, last) for equal shares of 0 .. size, one per thread.
template <class Function>
void for_shares(int64_t shares, int64_t size, const Function& function) {
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) function(s, size * s / shares, size * (s + 1) / shares);
  });
}

// The rows first .. last of a table with a row per feature.
template <class T>
void fill(const ScaledTable<T>& start, int64_t stride, int64_t first, int64_t last, T* to) {
  if (start.table == nullptr) {
    std::fill(to + first * stride, to + last * stride, T(0));
    return;
  }
  for (int64_t j = first; j < last; ++j) {
    const T scale = start.scale[j * start.step];
    for (int64_t k = j * stride; k < (j + 1) * stride; ++k) to[k] = scale * start.table[k];
  }
}

// A table with a row per class.
template <class T>
void fill_classes(const ScaledTable<T>& start, int64_t classes, int64_t features, T* to) {
  const int64_t length = padded_features(features);
  if (start.table == nullptr) {
    std::fill(to, to + classes * length, T(0));
    return;
  }
  for (int64_t k = 0; k < classes; ++k, to += length) {
    const T* from = start.table + k * length;
    for (int64_t j = 0; j < features; ++j) to[j] = start.scale[j * start.step] * from[j];
    std::fill(to + features, to + length, T(0));
  }
}

// to += every part, in order.
template <class T>
void add_parts(const T* parts, int64_t count, int64_t size, int64_t first, int64_t last, T* to) {
  for (int64_t part = 0; part < count; ++part) {
    const T* from = parts + part * size;
#pragma omp simd
    for (int64_t i = first; i < last; ++i) to[i] += from[i];
  }
}

int64_t shares_of(int64_t rows) {
  return std::max<int64_t>(1, std::min<int64_t>(at::get_num_threads(), rows / share_at_least));
}

// The products of the rows with the tables that are wanted.
template <class T>
void multiply(const Sweep<T>& sweep, const Kernels<T>& kernel, const RowList& rows, const RowList& next,
              T* products, T* more) {
  const FeatureMatrix& data = sweep.data;
  const int64_t stride = stride_for(sweep.classes);
  const T *first = sweep.tables[0], *second = sweep.tables[1];
  if (!data.is_sparse()) {
    if (first != nullptr)
      kernel.dense_product(dense_rows<T>(data), rows, next, sweep.classes, first, stride, products);
    if (second != nullptr)
      kernel.dense_product(dense_rows<T>(data), rows, next, sweep.classes, second, stride, more);
  } else if (first != nullptr && second != nullptr) {
    kernel.sparse_products(rows_of<T>(data), rows, first, second, stride, products, more);
  } else {
    if (first != nullptr) kernel.sparse_product(rows_of<T>(data), rows, first, stride, products);
    if (second != nullptr) kernel.sparse_product(rows_of<T>(data), rows, second, stride, more);
  }
}

template <class T>
void run_by_rows(const Sweep<T>& sweep) {
  const FeatureMatrix& data = sweep.data;
  const int64_t features = data.features(), classes = sweep.classes, stride = stride_for(classes);
  const Kernels<T>& kernel = kernels<T>(stride);
  const int64_t size = data.is_sparse() ? features * stride : classes * padded_features(features);
  const int64_t shares = shares_of(sweep.count);
  const int64_t row_bytes = std::max<int64_t>(1, data.bytes() / data.rows());
  const int64_t rows_at_once = std::clamp(block_bytes / row_bytes, fewest_block_rows, most_dense_rows);
  const int64_t scratch = rows_at_once * stride;
  const Tensor buffers = at::empty({shares * 3 * scratch}, type_of<T>());
  const Tensor parts = at::empty({sweep.sum == nullptr ? 0 : (shares - 1) * size}, type_of<T>());
  T* const other_sums = parts.data_ptr<T>();

  for_shares(shares, sweep.count, [&](int64_t share, int64_t first, int64_t last) {
    T* const scores = buffers.data_ptr<T>() + share * 3 * scratch;
    T* const more = scores + scratch;
    T* const factors = more + scratch;
    T* const sum = share == 0 || sweep.sum == nullptr ? sweep.sum : other_sums + (share - 1) * size;
    const ScaledTable<T> start = share == 0 ? sweep.start : ScaledTable<T>{};
    if (sum != nullptr && data.is_sparse()) fill(start, stride, 0, features, sum);
    if (sum != nullptr && !data.is_sparse()) fill_classes(start, classes, features, sum);
    for (int64_t begin = first; begin < last; begin += rows_at_once) {
      const RowList rows{sweep.index, begin, std::min(rows_at_once, last - begin)};
      const int64_t after = begin + rows.count;
      const RowList next{sweep.index, after, std::min(rows_at_once, last - after)};
      multiply(sweep, kernel, rows, next, scores, more);
      sweep.block(begin, rows.count, scores, more, factors);
      if (sum == nullptr) continue;
      if (data.is_sparse()) {
        kernel.sparse_outer(rows_of<T>(data), rows, factors, stride, 0, features, sum);
      } else {
        kernel.dense_outer(dense_rows<T>(data), rows, next, classes, factors, stride, sum);
      }
    }
  });
  if (sweep.sum != nullptr && shares > 1) {
    for_shares(shares, size, [&](int64_t, int64_t first, int64_t last) {
      add_parts(other_sums, shares - 1, size, first, last, sweep.sum);
    });
  }
}

// Where to cut the columns so that every thread gets about as many non-zeros.
std::vector<int64_t> column_cuts(const FeatureMatrix& data, int64_t shares) {
  const auto* before = data.by_columns().stored_before.data_ptr<int64_t>();
  std::vector<int64_t> cuts{0};
  for (int64_t s = 1; s < shares; ++s) {
    cuts.push_back(std::lower_bound(before, before + data.features(), data.stored() * s / shares) - before);
  }
  cuts.push_back(data.features());
  return cuts;
}

// The products, and what becomes of them, of the rows first .. last; the three arrays begin with row `first`.
template <class T>
void sweep_rows(const Sweep<T>& sweep, int64_t first, int64_t last, T* products, T* more, T* factors) {
  const int64_t stride = stride_for(sweep.classes);
  const Kernels<T>& kernel = kernels<T>(stride);
  for (int64_t begin = first; begin < last; begin += sparse_block_rows) {
    const RowList block{sweep.index, begin, std::min(sparse_block_rows, last - begin)};
    const int64_t at = (begin - first) * stride;
    multiply(sweep, kernel, block, {}, products + at, more + at);
    sweep.block(begin, block.count, products + at, more + at, factors + at);
  }
}

// By one thread, block of rows by block: what has a number per example stays in the core's cache. The same
// sums in the same order as below.
template <class T>
void run_block_by_block(const Sweep<T>& sweep) {
  const int64_t stride = stride_for(sweep.classes);
  const Kernels<T>& kernel = kernels<T>(stride);
  SparseColumns<T> columns = columns_of<T>(sweep.data);
  const int64_t blocks = columns.blocks, size = columns.rows_at_once * stride;
  const Tensor buffer = at::empty({3 * size}, type_of<T>());
  T* const products = buffer.data_ptr<T>();
  T* const factors = products + 2 * size;
  const T one = 1;
  columns.blocks = 1;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = b * columns.rows_at_once;
    sweep_rows(sweep, first, std::min(sweep.count, first + columns.rows_at_once), products, products + size,
               factors);
    if (sweep.sum == nullptr) continue;
    const ScaledTable<T> so_far = b == 0 ? sweep.start : ScaledTable<T>{sweep.sum, &one, 0};
    kernel.sparse_transposed(columns, factors, stride, 0, columns.features, so_far, sweep.sum);
    columns.offsets += columns.features;
  }
}

// First every example's products from its row, then every feature's sum from its column: nothing is scattered
// and no thread sums into another's table, so that the bits do not depend on the number of threads. A batch
// has no columns of its own: there every thread takes the part of each row that lies in its range of
// features.
template <class T>
void run_by_columns(const Sweep<T>& sweep) {
  const FeatureMatrix& data = sweep.data;
  const int64_t shares = shares_of(sweep.count);
  if (shares == 1 && sweep.index == nullptr) {
    run_block_by_block(sweep);
    return;
  }
  const int64_t stride = stride_for(sweep.classes), size = sweep.count * stride;
  const Kernels<T>& kernel = kernels<T>(stride);
  const Tensor buffer = at::empty({3 * size}, type_of<T>());
  T* const products = buffer.data_ptr<T>();
  T* const factors = products + 2 * size;
  for_shares(shares, sweep.count, [&](int64_t, int64_t first, int64_t last) {
    const int64_t at = first * stride;
    sweep_rows(sweep, first, last, products + at, products + size + at, factors + at);
  });
  if (sweep.sum == nullptr) return;
  const std::vector<int64_t> cuts = column_cuts(data, shares);
  for_shares(shares, shares, [&](int64_t share, int64_t, int64_t) {
    const int64_t first = cuts[static_cast<size_t>(share)], last = cuts[static_cast<size_t>(share) + 1];
    if (sweep.index == nullptr) {
      kernel.sparse_transposed(columns_of<T>(data), factors, stride, first, last, sweep.start, sweep.sum);
    } else {
      fill(sweep.start, stride, first, last, sweep.sum);
      kernel.sparse_outer(rows_of<T>(data), {sweep.index, 0, sweep.count}, factors, stride, first, last,
                          sweep.sum);
    }
  });
}

}  // namespace

template <class T>
void run(const Sweep<T>& sweep) {
  // A batch of a matrix with few features has a sums' table that every thread can have for itself.
  const bool wide = sweep.data.features() > sweep.data.rows();
  if (sweep.data.is_sparse() && (sweep.index == nullptr || wide)) {
    run_by_columns(sweep);
  } else {
    run_by_rows(sweep);
  }
}
template void run(const Sweep<float>& sweep);
template void run(const Sweep<double>& sweep);

}  // namespace bilevel::softmax
