// The loops behind softmax_kernels.h. Included once by each softmax_kernels_*.cpp, after a pragma that names
// its instruction set and a definition of BILEVEL_VECTOR_BYTES; so everything here has internal linkage, and
// nothing of the standard library is instantiated: the linker would be free to use the copy that was compiled
// for the newer processor everywhere.
//
// Rows of the tables are held in vector registers by the compilers' vector types. Where a stride is known
// (up to 32 classes) it is a constant; beyond, a row is walked in tiles of 32 classes and the data, which is
// in the cache by then, read once for each.

#define BILEVEL_INLINE inline __attribute__((always_inline))
#include "bilevel/problems/softmax_lanes.h"

#include "bilevel/problems/softmax_dense.h"
#include "bilevel/problems/softmax_rows.h"

namespace {

using bilevel::softmax::Kernels;
using bilevel::softmax::ScaledTable;
using bilevel::softmax::SparseColumns;
using bilevel::softmax::SparseRows;

// Where a table's row begins. A short index is 8 times the row's: of rows of 16 floats, an address without a
// shift.
template <class Index>
BILEVEL_INLINE int64_t place_of(Index index, int64_t stride) {
  return sizeof(Index) == 2 ? static_cast<int64_t>(index) * stride / 8 : static_cast<int64_t>(index) * stride;
}

// For each of the tables, total + the sum over entries first .. last of value * table[index], in a fixed
// order that keeps several multiply-adds in flight and is the same for one table and for two, and for short
// indices and others. A number of entries that is no multiple of the chains is filled up with zeros times the
// last entry's row: the processor cannot guess how many are left.
template <class T, int S, int tables, class Index>
BILEVEL_INLINE void add_entries(const Index* indices, const T* values, int64_t first, int64_t last,
                                const T* const (&table)[tables], int64_t stride,
                                Lanes<T, tile_of<S>> (&total)[tables]) {
  constexpr int chains = Lanes<T, tile_of<S>>::registers == 1 ? 4 : 2;
  if (first == last) return;
  Lanes<T, tile_of<S>> sums[tables][chains], row;
#pragma GCC unroll 2
  for (int t = 0; t < tables; ++t) {
    sums[t][0] = total[t];
#pragma GCC unroll 4
    for (int i = 1; i < chains; ++i) sums[t][i].clear();
  }
  int64_t e = first;
  for (; e + chains <= last; e += chains) {
#pragma GCC unroll 4
    for (int i = 0; i < chains; ++i) {
      const int64_t at = place_of(indices[e + i], stride);
#pragma GCC unroll 2
      for (int t = 0; t < tables; ++t) {
        row.load(table[t] + at);
        sums[t][i].add_scaled(values[e + i], row);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i + 1 < chains; ++i) {
    const bool there = e + i < last;
    const int64_t entry = there ? e + i : last - 1;
    const T value = there ? values[entry] : T(0);
    const int64_t at = place_of(indices[entry], stride);
#pragma GCC unroll 2
    for (int t = 0; t < tables; ++t) {
      row.load(table[t] + at);
      sums[t][i].add_scaled(value, row);
    }
  }
#pragma GCC unroll 2
  for (int t = 0; t < tables; ++t) {
    if constexpr (chains == 4) {
      sums[t][0].add(sums[t][2]);
      sums[t][1].add(sums[t][3]);
    }
    sums[t][0].add(sums[t][1]);
    total[t] = sums[t][0];
  }
}

template <class T, int S, int tables, class Index>
BILEVEL_INLINE void products_by(const Index* indices, const SparseRows<T>& x, const RowList& rows,
                                const T* const (&table)[tables], int64_t stride,
                                T* const (&products)[tables]) {
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t row = rows[r];
    for (int64_t tile = 0; tile < stride; tile += tile_of<S>) {
      Lanes<T, tile_of<S>> total[tables];
      const T* from[tables];
      for (int t = 0; t < tables; ++t) {
        total[t].clear();
        from[t] = table[t] + tile;
      }
      add_entries<T, S, tables>(indices, x.values, x.offsets[row], x.offsets[row + 1], from, stride, total);
      for (int t = 0; t < tables; ++t) total[t].store(products[t] + r * stride + tile);
    }
  }
}

template <class T, int S, int tables>
BILEVEL_INLINE void products_with(const SparseRows<T>& data, const RowList& rows,
                                  const T* const (&table)[tables], int64_t stride,
                                  T* const (&products)[tables]) {
  const SparseRows<T> x = data;  // a copy, which no store through `products` can change
  if (x.short_indices != nullptr) {
    products_by<T, S, tables>(x.short_indices, x, rows, table, stride, products);
  } else {
    products_by<T, S, tables>(x.indices, x, rows, table, stride, products);
  }
}

template <class T, int S>
void sparse_product(const SparseRows<T>& data, const RowList& rows, const T* table, int64_t runtime_stride,
                    T* products) {
  products_with<T, S, 1>(data, rows, {table}, S == 0 ? runtime_stride : S, {products});
}

template <class T, int S>
void sparse_products(const SparseRows<T>& data, const RowList& rows, const T* table, const T* second_table,
                     int64_t runtime_stride, T* products, T* second_products) {
  products_with<T, S, 2>(data, rows, {table, second_table}, S == 0 ? runtime_stride : S,
                         {products, second_products});
}

template <class T, int S, class Index>
BILEVEL_INLINE void transposed_by(const Index* rows, const SparseColumns<T>& x, const T* factors,
                                  int64_t stride, int64_t first, int64_t last, const ScaledTable<T>& start,
                                  T* sum) {
  for (int64_t block = 0; block < x.blocks; ++block) {
    const int64_t* offsets = x.offsets + block * x.features;
    const T* of_block = factors + block * x.rows_at_once * stride;
    __asm__("" : "+r"(of_block));  // or the compiler adds the block's offset again at every entry
    for (int64_t j = first; j < last; ++j) {
      for (int64_t tile = 0; tile < stride; tile += tile_of<S>) {
        Lanes<T, tile_of<S>> total[1];
        if (block > 0) {
          total[0].load(sum + j * stride + tile);
        } else if (start.table != nullptr) {
          total[0].load(start.table + j * stride + tile);
          total[0].scale(start.scale[j * start.step]);
        } else {
          total[0].clear();
        }
        add_entries<T, S, 1>(rows, x.values, offsets[j], offsets[j + 1], {of_block + tile}, stride, total);
        total[0].store(sum + j * stride + tile);
      }
    }
  }
}

template <class T, int S>
void sparse_transposed(const SparseColumns<T>& data, const T* factors, int64_t runtime_stride, int64_t first,
                       int64_t last, const ScaledTable<T>& start, T* sum) {
  const int64_t stride = S == 0 ? runtime_stride : S;
  const SparseColumns<T> x = data;
  if (x.short_rows != nullptr) {
    transposed_by<T, S>(x.short_rows, x, factors, stride, first, last, start, sum);
  } else {
    transposed_by<T, S>(x.rows, x, factors, stride, first, last, start, sum);
  }
}

// The first entry of a row whose index is at least `index`.
inline int64_t lower_entry(const int32_t* indices, int64_t begin, int64_t end, int64_t index) {
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (indices[middle] < index) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

template <class T, int S>
void sparse_outer(const SparseRows<T>& data, const RowList& rows, const T* factors, int64_t runtime_stride,
                  int64_t first, int64_t last, T* sum) {
  const int64_t stride = S == 0 ? runtime_stride : S;
  const SparseRows<T> x = data;  // a copy, which no store through `sum` can change
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t row = rows[r];
    int64_t begin = x.offsets[row], end = x.offsets[row + 1];
    if (begin == end) continue;
    if (x.indices[begin] < first) begin = lower_entry(x.indices, begin, end, first);
    if (x.indices[end - 1] >= last) end = lower_entry(x.indices, begin, end, last);
    for (int64_t tile = 0; tile < stride; tile += tile_of<S>) {
      Lanes<T, tile_of<S>> factor, total;
      factor.load(factors + r * stride + tile);
      for (int64_t e = begin; e < end; ++e) {
        T* to = sum + x.indices[e] * stride + tile;
        total.load(to);
        total.add_scaled(x.values[e], factor);
        total.store(to);
      }
    }
  }
}

template <class T, int S>
constexpr Kernels<T> kernels_of{dense_product<T>, sparse_product<T, S>, sparse_products<T, S>,
                                dense_outer<T>,   sparse_outer<T, S>,   sparse_transposed<T, S>,
                                softmax<T, S>,    residuals_of<T, S>,   curvature<T, S>};

template <class T>
const Kernels<T>& kernels_for(int64_t stride) {
  switch (stride) {
    case 4:
      return kernels_of<T, 4>;
    case 8:
      return kernels_of<T, 8>;
    case 16:
      return kernels_of<T, 16>;
    case 20:
      return kernels_of<T, 20>;
    case 32:
      return kernels_of<T, 32>;
    default:
      return kernels_of<T, 0>;
  }
}

}  // namespace
