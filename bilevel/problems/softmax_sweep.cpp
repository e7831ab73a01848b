#include "bilevel/problems/softmax_sweep.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace bilevel::softmax {
namespace {

constexpr int64_t block_bytes = 128 << 10;  // of data: leaves room for the tables in a core's cache
constexpr int64_t most_block_rows = 64, fewest_block_rows = 8;
constexpr int64_t share_at_least = 32;  // rows: less is not worth a thread

template <class T>
at::TensorOptions type_of() {
  return at::TensorOptions().dtype(std::is_same_v<T, float> ? at::kFloat : at::kDouble);
}

template <class T>
SparseRows<T> view(const FeatureMatrix::Compressed& matrix) {
  return {matrix.offsets.data_ptr<int64_t>(), matrix.indices.data_ptr<int32_t>(),
          matrix.values.data_ptr<T>()};
}

// Calls function(share, first, last) for equal shares of 0 .. size, one per thread.
template <class Function>
void for_shares(int64_t shares, int64_t size, const Function& function) {
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) function(s, size * s / shares, size * (s + 1) / shares);
  });
}

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

template <class T>
void run_by_rows(const Sweep<T>& sweep) {
  const Kernels<T>& kernel = kernels<T>(sweep.stride);
  const FeatureMatrix& data = sweep.data;
  const int64_t features = data.features(), stride = sweep.stride, size = features * stride;
  const int64_t shares = shares_of(sweep.count);
  const int64_t row_bytes = std::max<int64_t>(1, data.bytes() / data.rows());
  const int64_t rows_at_once = std::clamp(block_bytes / row_bytes, fewest_block_rows, most_block_rows);
  const int64_t scratch = rows_at_once * stride;
  const Tensor buffers = at::empty({shares * 3 * scratch}, type_of<T>());
  const Tensor parts = at::empty({sweep.sum == nullptr ? 0 : (shares - 1) * size}, type_of<T>());
  T* const other_sums = parts.data_ptr<T>();

  for_shares(shares, sweep.count, [&](int64_t share, int64_t first, int64_t last) {
    T* const scores = buffers.data_ptr<T>() + share * 3 * scratch;
    T* const more = scores + scratch;
    T* const factors = more + scratch;
    T* const sum = share == 0 || sweep.sum == nullptr ? sweep.sum : other_sums + (share - 1) * size;
    if (sum != nullptr) fill(share == 0 ? sweep.start : ScaledTable<T>{}, stride, 0, features, sum);
    const auto product = [&](const RowList& rows, const T* table, T* to) {
      if (table == nullptr) return;
      if (data.is_sparse()) {
        kernel.sparse_product(view<T>(data.by_rows()), rows, table, stride, {}, to);
      } else {
        kernel.dense_product({data.dense().data_ptr<T>(), features}, rows, table, stride, to);
      }
    };
    for (int64_t begin = first; begin < last; begin += rows_at_once) {
      const RowList rows{sweep.index, begin, std::min(rows_at_once, last - begin)};
      product(rows, sweep.tables[0], scores);
      product(rows, sweep.tables[1], more);
      sweep.block(begin, rows.count, scores, more, factors);
      if (sum == nullptr) continue;
      if (data.is_sparse()) {
        kernel.sparse_outer(view<T>(data.by_rows()), rows, factors, stride, 0, features, sum);
      } else {
        kernel.dense_outer({data.dense().data_ptr<T>(), features}, rows, factors, stride, sum);
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
  const auto* offsets = data.by_columns().offsets.data_ptr<int64_t>();
  std::vector<int64_t> cuts{0};
  for (int64_t s = 1; s < shares; ++s) {
    cuts.push_back(std::lower_bound(offsets, offsets + data.features(), data.stored() * s / shares) -
                   offsets);
  }
  cuts.push_back(data.features());
  return cuts;
}

// First every example's products from its row, then every feature's sum from its column: nothing is scattered
// and no thread sums into another's table, so that the bits do not depend on the number of threads. A batch
// has no columns of its own: there every thread takes the part of each row that lies in its range of
// features.
template <class T>
void run_by_columns(const Sweep<T>& sweep) {
  const Kernels<T>& kernel = kernels<T>(sweep.stride);
  const FeatureMatrix& data = sweep.data;
  const SparseRows<T> rows = view<T>(data.by_rows()), columns = view<T>(data.by_columns());
  const int64_t stride = sweep.stride, size = sweep.count * stride;
  const int64_t shares = shares_of(sweep.count);
  const Tensor buffer = at::empty({3 * size}, type_of<T>());
  T* const products = buffer.data_ptr<T>();
  T* const more = products + size;
  T* const factors = more + size;
  for_shares(shares, sweep.count, [&](int64_t, int64_t first, int64_t last) {
    for (int64_t begin = first; begin < last; begin += most_block_rows) {
      const RowList block{sweep.index, begin, std::min(most_block_rows, last - begin)};
      const int64_t at = begin * stride;
      if (sweep.tables[0] != nullptr)
        kernel.sparse_product(rows, block, sweep.tables[0], stride, {}, products + at);
      if (sweep.tables[1] != nullptr)
        kernel.sparse_product(rows, block, sweep.tables[1], stride, {}, more + at);
      sweep.block(begin, block.count, products + at, more + at, factors + at);
    }
  });
  if (sweep.sum == nullptr) return;
  const std::vector<int64_t> cuts = column_cuts(data, shares);
  for_shares(shares, shares, [&](int64_t share, int64_t, int64_t) {
    const int64_t first = cuts[static_cast<size_t>(share)], last = cuts[static_cast<size_t>(share) + 1];
    if (sweep.index == nullptr) {
      kernel.sparse_product(columns, {nullptr, first, last - first}, factors, stride, sweep.start,
                            sweep.sum + first * stride);
    } else {
      fill(sweep.start, stride, first, last, sweep.sum);
      kernel.sparse_outer(rows, {sweep.index, 0, sweep.count}, factors, stride, first, last, sweep.sum);
    }
  });
}

}  // namespace

template <class T>
void run(const Sweep<T>& sweep) {
  if (sweep.data.has_columns()) {
    run_by_columns(sweep);
  } else {
    run_by_rows(sweep);
  }
}
template void run(const Sweep<float>& sweep);
template void run(const Sweep<double>& sweep);

}  // namespace bilevel::softmax
