// The loops behind softmax_kernels.h. Included once by each softmax_kernels_*.cpp, after a pragma that names
// its instruction set and a definition of BILEVEL_VECTOR_BYTES; so everything here has internal linkage, and
// nothing of the standard library is instantiated: the linker would be free to use the copy that was compiled
// for the newer processor everywhere.
//
// Rows of the tables are held in vector registers by the compilers' vector types. Where a stride is known
// (up to 32 classes) it is a constant; beyond, a row is walked in tiles of 32 classes and the data, which is
// in the cache by then, read once for each.

#define BILEVEL_INLINE inline __attribute__((always_inline))
#include "bilevel/problems/softmax_rows.h"

namespace {

using bilevel::softmax::DenseRows;
using bilevel::softmax::Kernels;
using bilevel::softmax::RowList;
using bilevel::softmax::ScaledTable;
using bilevel::softmax::SparseRows;

constexpr int vector_lanes(int lanes, int bytes) {  // the largest power of two that fits
  int result = 1;
  while (2 * result <= lanes && 2 * result * bytes <= BILEVEL_VECTOR_BYTES) result *= 2;
  return result;
}

// `lanes` consecutive numbers in as few registers as they need.
template <class T, int lanes>
struct Lanes {
  static constexpr int width = vector_lanes(lanes, sizeof(T));
  static constexpr int registers = 1 + Lanes<T, lanes - width>::registers;
  typedef T Vector __attribute__((vector_size(width * sizeof(T))));
  Vector head;
  Lanes<T, lanes - width> tail;

  BILEVEL_INLINE void clear() {
    head = Vector{};
    tail.clear();
  }
  BILEVEL_INLINE void load(const T* from) {
    __builtin_memcpy(&head, from, sizeof(head));  // not aligned
    tail.load(from + width);
  }
  BILEVEL_INLINE void store(T* to) const {
    __builtin_memcpy(to, &head, sizeof(head));
    tail.store(to + width);
  }
  BILEVEL_INLINE void add(const Lanes& other) {
    head += other.head;
    tail.add(other.tail);
  }
  BILEVEL_INLINE void scale(T factor) {
    head *= factor;
    tail.scale(factor);
  }
  BILEVEL_INLINE void add_scaled(T factor, const Lanes& other) {
    head += factor * other.head;
    tail.add_scaled(factor, other.tail);
  }
};
template <class T>
struct Lanes<T, 0> {
  static constexpr int registers = 0;
  BILEVEL_INLINE void clear() {}
  BILEVEL_INLINE void load(const T* /*from*/) {}
  BILEVEL_INLINE void store(T* /*to*/) const {}
  BILEVEL_INLINE void add(const Lanes& /*other*/) {}
  BILEVEL_INLINE void scale(T /*factor*/) {}
  BILEVEL_INLINE void add_scaled(T /*factor*/, const Lanes& /*other*/) {}
};

// Eight registers of sums hide the latency of multiply-add.
template <class T, int lanes>
constexpr int sums_at_once = Lanes<T, lanes>::registers >= 8 ? 1 : 8 / Lanes<T, lanes>::registers;

// A constant stride S, or 0 for one that is known at run time and walked in tiles of 32.
template <int S>
constexpr int tile_of = S == 0 ? 32 : S;

template <class T, int S, int rows>
BILEVEL_INLINE void dense_product_tile(const T* const (&x)[rows], int64_t features, const T* table,
                                       int64_t stride, T* products) {
  Lanes<T, tile_of<S>> sums[rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) sums[r].clear();
  for (int64_t j = 0; j < features; ++j) {
    Lanes<T, tile_of<S>> weights;
    weights.load(table + j * stride);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) sums[r].add_scaled(x[r][j], weights);
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) sums[r].store(products + r * stride);
}

template <class T, int S>
void dense_product(const DenseRows<T>& data, const RowList& rows, const T* table, int64_t runtime_stride,
                   T* products) {
  const int64_t stride = S == 0 ? runtime_stride : S;
  constexpr int group = sums_at_once<T, tile_of<S>>;
  for (int64_t tile = 0; tile < stride; tile += tile_of<S>) {
    int64_t r = 0;
    for (; r + group <= rows.count; r += group) {
      const T* x[group];
      for (int i = 0; i < group; ++i) x[i] = data.values + rows[r + i] * data.features;
      dense_product_tile<T, S, group>(x, data.features, table + tile, stride, products + r * stride + tile);
    }
    for (; r < rows.count; ++r) {
      const T* x[1] = {data.values + rows[r] * data.features};
      dense_product_tile<T, S, 1>(x, data.features, table + tile, stride, products + r * stride + tile);
    }
  }
}

template <class T, int S, int rows>
BILEVEL_INLINE void dense_outer_tile(const T* const (&x)[rows], int64_t features, const T* factors,
                                     int64_t stride, T* sum) {
  Lanes<T, tile_of<S>> factor[rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) factor[r].load(factors + r * stride);
  for (int64_t j = 0; j < features; ++j) {
    Lanes<T, tile_of<S>> total;
    total.load(sum + j * stride);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) total.add_scaled(x[r][j], factor[r]);
    total.store(sum + j * stride);
  }
}

template <class T, int S>
void dense_outer(const DenseRows<T>& data, const RowList& rows, const T* factors, int64_t runtime_stride,
                 T* sum) {
  const int64_t stride = S == 0 ? runtime_stride : S;
  constexpr int group = sums_at_once<T, tile_of<S>>;
  for (int64_t tile = 0; tile < stride; tile += tile_of<S>) {
    int64_t r = 0;
    for (; r + group <= rows.count; r += group) {
      const T* x[group];
      for (int i = 0; i < group; ++i) x[i] = data.values + rows[r + i] * data.features;
      dense_outer_tile<T, S, group>(x, data.features, factors + r * stride + tile, stride, sum + tile);
    }
    for (; r < rows.count; ++r) {
      const T* x[1] = {data.values + rows[r] * data.features};
      dense_outer_tile<T, S, 1>(x, data.features, factors + r * stride + tile, stride, sum + tile);
    }
  }
}

template <class T, int S>
void sparse_product(const SparseRows<T>& data, const RowList& rows, const T* table, int64_t runtime_stride,
                    const ScaledTable<T>& start, T* products) {
  const int64_t stride = S == 0 ? runtime_stride : S;
  constexpr int chains = Lanes<T, tile_of<S>>::registers == 1 ? 4 : 2;
  const SparseRows<T> x = data;  // a copy, which no store through `products` can change
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t row = rows[r];
    for (int64_t tile = 0; tile < stride; tile += tile_of<S>) {
      Lanes<T, tile_of<S>> sums[chains], weights;
#pragma GCC unroll 4
      for (int i = 0; i < chains; ++i) sums[i].clear();
      if (start.table != nullptr) {
        sums[0].load(start.table + row * stride + tile);
        sums[0].scale(start.scale[row * start.step]);
      }
      int64_t e = x.offsets[row];
      const int64_t end = x.offsets[row + 1];
      for (; e + chains <= end; e += chains) {
#pragma GCC unroll 4
        for (int i = 0; i < chains; ++i) {
          weights.load(table + x.indices[e + i] * stride + tile);
          sums[i].add_scaled(x.values[e + i], weights);
        }
      }
      for (; e < end; ++e) {
        weights.load(table + x.indices[e] * stride + tile);
        sums[0].add_scaled(x.values[e], weights);
      }
      if constexpr (chains == 4) {
        sums[0].add(sums[2]);
        sums[1].add(sums[3]);
      }
      sums[0].add(sums[1]);
      sums[0].store(products + r * stride + tile);
    }
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
constexpr Kernels<T> kernels_of{dense_product<T, S>, sparse_product<T, S>, dense_outer<T, S>,
                                sparse_outer<T, S>,  softmax<T, S>,        residuals_of<T, S>,
                                curvature<T, S>};

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
