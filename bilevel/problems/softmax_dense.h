// Products of dense rows with the weights, one row per class (softmax_kernels.h). Included by
// softmax_loops.h, under its rules.
//
// Vectors run along the features. A product holds the sums of a few rows and all classes in registers and
// adds up their lanes at the end; an outer product holds the sums of two vectors of features and all classes
// while it walks the rows of the block, which are in the core's cache. More classes than fit are taken in
// tiles. The rows of the next block are asked for on the way, every other one by the product and the rest by
// the outer product: memory would stand still during the latter, and takes longer than either.

namespace {

using bilevel::softmax::DenseRows;
using bilevel::softmax::RowList;

// Vectors that reach beyond a row's end are masked there. What is read is the next row, or a copy where the
// memory ends.
constexpr int64_t tail_length = 32;  // two of the widest vectors

constexpr int dense_sums = BILEVEL_VECTOR_BYTES == 64 ? 20 : 10;  // registers of sums: two in three, nearly
constexpr int most_classes_at_once = dense_sums / 2;

template <class T, int bytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(bytes)));
};
template <class T>
using Wide = typename VectorOf<T, BILEVEL_VECTOR_BYTES>::Type;
template <class T>
constexpr int64_t wide_lanes = BILEVEL_VECTOR_BYTES / static_cast<int64_t>(sizeof(T));

template <class T>
BILEVEL_INLINE Wide<T> load_wide(const T* from) {
  Wide<T> result;
  __builtin_memcpy(&result, from, sizeof(result));  // not aligned
  return result;
}
template <class T>
BILEVEL_INLINE void store_wide(const Wide<T>& value, T* to) {
  __builtin_memcpy(to, &value, sizeof(value));
}

// For a value that is used several times, which the compiler would otherwise load as often.
template <class Vector>
BILEVEL_INLINE void keep_in_register(Vector& value) {
#if BILEVEL_VECTOR_BYTES == 64
  __asm__("" : "+v"(value));
#else
  (void)value;
#endif
}

template <class T>
struct MaskOf;
template <>
struct MaskOf<float> {
  using Type = int32_t;
};
template <>
struct MaskOf<double> {
  using Type = int64_t;
};
template <class T>
using Mask = Wide<typename MaskOf<T>::Type>;

template <class T>
BILEVEL_INLINE Wide<T> masked(const Wide<T>& value, const Mask<T>& mask) {
  return reinterpret_cast<Wide<T>>(reinterpret_cast<Mask<T>>(value) & mask);
}

// The rows of a block, and their ends: `rest` features after the `whole` ones, which fill vectors two by two.
template <class T>
struct BlockRows {
  const T* row[bilevel::softmax::most_dense_rows];
  const T* tail[bilevel::softmax::most_dense_rows];
  const T* next[bilevel::softmax::most_dense_rows];  // what to ask for while row r is at work
  typename MaskOf<T>::Type mask[tail_length];
  int64_t whole, rest;
  T copies[bilevel::softmax::most_dense_rows * tail_length];  // of the ends of the matrix's last rows

  BlockRows(const DenseRows<T>& data, const RowList& rows, const RowList& rows_after, bool odd_ones) {
    whole = data.features / tail_length * tail_length;
    rest = data.features - whole;
    for (int64_t j = 0; j < tail_length; ++j) mask[j] = j < rest ? -1 : 0;
    T* copy = copies;
    const T* const end = data.values + data.rows * data.features;
    for (int64_t r = 0; r < rows.count; ++r) {
      row[r] = data.values + rows[r] * data.features;
      tail[r] = row[r] + whole;
      // A product asks for rows 0, 2, ... while it walks the same of its own; an outer product, whose vectors
      // come in twos, for the first vectors of row 1 beside its row 0 and the second ones beside row 1.
      const int64_t asked = odd_ones ? r | 1 : r;
      next[r] = asked >= rows_after.count ? row[r]
                                          : data.values + rows_after[asked] * data.features +
                                                (odd_ones && r % 2 == 1 ? wide_lanes<T> : 0);
      if (rest == 0 || end - tail[r] >= tail_length) continue;
      for (int64_t j = 0; j < tail_length; ++j) copy[j] = j < rest ? tail[r][j] : 0;
      tail[r] = copy;
      copy += tail_length;
    }
  }
  BILEVEL_INLINE Mask<T> mask_from(int64_t j) const { return load_wide(mask + j); }
};

template <class T, int rows, int classes>
BILEVEL_INLINE void add_products(const Wide<T> (&values)[rows], const T* table, int64_t row_length,
                                 Wide<T> (&sums)[rows][classes]) {
#pragma GCC unroll 10
  for (int k = 0; k < classes; ++k) {
    Wide<T> weights = load_wide(table + k * row_length);
    keep_in_register(weights);
#pragma GCC unroll 10
    for (int r = 0; r < rows; ++r) sums[r][k] += values[r] * weights;
  }
}

// Where every run of 2 * half lanes of `a` holds terms of one sum, and so does b's: the first half of the
// result's run holds terms of a's sum, half as many, and the second half of b's.
template <int half, class Vector, int... lane>
BILEVEL_INLINE Vector merge_lanes(const Vector& a, const Vector& b, std::integer_sequence<int, lane...>) {
  constexpr int lanes = sizeof...(lane), run = 2 * half;
  return __builtin_shufflevector(a, b,
                                 (lane / run * run + lane % half + (lane % run < half ? 0 : lanes))...) +
         __builtin_shufflevector(
             a, b, (lane / run * run + lane % half + half + (lane % run < half ? 0 : lanes))...);
}

// Lane k is the sum of v[k]'s lanes, for k < count; zero beyond. A few shuffles for all of them, where each
// by itself would take as many. (Of v[0], v[apart], ..., in runs of `apart` lanes.)
template <int count, int apart, class Vector>
BILEVEL_INLINE Vector sums_of_lanes(const Vector* v) {
  constexpr int lanes = sizeof(*v) / sizeof((*v)[0]);
  if constexpr (count <= 0) {
    return Vector{};
  } else if constexpr (apart == lanes) {
    return *v;
  } else {
    return merge_lanes<apart>(sums_of_lanes<count, 2 * apart>(v),
                              sums_of_lanes<count - apart, 2 * apart>(v + apart),
                              std::make_integer_sequence<int, lanes>{});
  }
}

template <class T, int classes>
BILEVEL_INLINE void store_sums(const Wide<T>* sums, T* to) {
  constexpr int lanes = static_cast<int>(wide_lanes<T>), here = classes < lanes ? classes : lanes;
  const Wide<T> totals = sums_of_lanes<here, 1>(sums);
  __builtin_memcpy(to, &totals, here * sizeof(T));
  if constexpr (classes > here) store_sums<T, classes - here>(sums + here, to + here);
}

template <class T, int rows, int classes>
BILEVEL_INLINE void products_of_rows(const BlockRows<T>& block, int64_t first, const T* table,
                                     int64_t row_length, int64_t stride, T* products) {
  Wide<T> sums[rows][classes], values[rows];
  const T *x[rows], *tail[rows], *const next = block.next[first];
#pragma GCC unroll 10
  for (int r = 0; r < rows; ++r) {
    x[r] = block.row[first + r];
    tail[r] = block.tail[first + r];
#pragma GCC unroll 10
    for (int k = 0; k < classes; ++k) sums[r][k] = Wide<T>{};
  }
  for (int64_t j = 0; j < block.whole; j += wide_lanes<T>) {
#pragma GCC unroll 10
    for (int r = 0; r < rows; ++r) values[r] = load_wide(x[r] + j);
    __builtin_prefetch(next + j, 0, 2);
    add_products<T, rows, classes>(values, table + j, row_length, sums);
  }
  for (int64_t j = 0; j < block.rest; j += wide_lanes<T>) {
#pragma GCC unroll 10
    for (int r = 0; r < rows; ++r) values[r] = masked<T>(load_wide(tail[r] + j), block.mask_from(j));
    add_products<T, rows, classes>(values, table + block.whole + j, row_length, sums);
  }
#pragma GCC unroll 10
  for (int r = 0; r < rows; ++r) store_sums<T, classes>(sums[r], products + (first + r) * stride);
}

struct Products {
  template <class T, int classes>
  __attribute__((noinline)) static void run(const BlockRows<T>& block, int64_t count, const T* table,
                                            int64_t row_length, int64_t stride, T* products) {
    constexpr int rows = dense_sums / classes < 8 ? dense_sums / classes : 8;
    int64_t r = 0;
    for (; r + rows <= count; r += rows) {
      products_of_rows<T, rows, classes>(block, r, table, row_length, stride, products);
    }
    for (; r < count; ++r) products_of_rows<T, 1, classes>(block, r, table, row_length, stride, products);
  }
};

// To two vectors of each class's sums.
template <class T, int classes, bool at_end>
BILEVEL_INLINE void add_outer(const T* const* rows, const T* const* next, int64_t offset, int64_t count,
                              const T* factors, int64_t stride, const Mask<T> (&mask)[2], T* sum,
                              int64_t row_length) {
  Wide<T> sums[2][classes];
#pragma GCC unroll 10
  for (int k = 0; k < classes; ++k) {
    sums[0][k] = load_wide(sum + k * row_length);
    sums[1][k] = load_wide(sum + k * row_length + wide_lanes<T>);
  }
  for (int64_t r = 0; r < count; ++r) {
    const T* const from = rows[r] + offset;
    if constexpr (!at_end) __builtin_prefetch(next[r] + offset, 0, 2);
    Wide<T> first = load_wide(from), second = load_wide(from + wide_lanes<T>);
    if constexpr (at_end) {
      first = masked<T>(first, mask[0]);
      second = masked<T>(second, mask[1]);
    }
#pragma GCC unroll 10
    for (int k = 0; k < classes; ++k) {
      Wide<T> factor = factors[r * stride + k] - Wide<T>{};
      keep_in_register(factor);
      sums[0][k] += factor * first;
      sums[1][k] += factor * second;
    }
  }
#pragma GCC unroll 10
  for (int k = 0; k < classes; ++k) {
    store_wide<T>(sums[0][k], sum + k * row_length);
    store_wide<T>(sums[1][k], sum + k * row_length + wide_lanes<T>);
  }
}

struct Outer {
  template <class T, int classes>
  __attribute__((noinline)) static void run(const BlockRows<T>& block, int64_t count, const T* factors,
                                            int64_t stride, T* sum, int64_t row_length) {
    constexpr int64_t step = 2 * wide_lanes<T>;
    for (int64_t j = 0; j < block.whole; j += step) {
      add_outer<T, classes, false>(block.row, block.next, j, count, factors, stride, {}, sum + j, row_length);
    }
    for (int64_t j = 0; j < block.rest; j += step) {
      add_outer<T, classes, true>(block.tail, block.next, j, count, factors, stride,
                                  {block.mask_from(j), block.mask_from(j + wide_lanes<T>)},
                                  sum + block.whole + j, row_length);
    }
  }
};

// Work::run for a number of classes that is known when it is compiled.
template <class Work, class T, int classes, class... Arguments>
BILEVEL_INLINE void with_classes(int64_t count, const Arguments&... arguments) {
  if (count == classes) {
    Work::template run<T, classes>(arguments...);
  } else if constexpr (classes > 1) {
    with_classes<Work, T, classes - 1>(count, arguments...);
  }
}

inline int64_t class_tiles(int64_t classes) {
  return (classes + most_classes_at_once - 1) / most_classes_at_once;
}

template <class T>
void dense_product(const DenseRows<T>& data, const RowList& rows, const RowList& next, int64_t classes,
                   const T* table, int64_t stride, T* products) {
  const BlockRows<T> block(data, rows, next, false);
  const int64_t row_length = bilevel::softmax::padded_features(data.features);
  const int64_t tiles = class_tiles(classes);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = classes * t / tiles, count = classes * (t + 1) / tiles - first;
    with_classes<Products, T, most_classes_at_once>(count, block, rows.count, table + first * row_length,
                                                    row_length, stride, products + first);
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int64_t k = classes; k < stride; ++k) products[r * stride + k] = 0;
  }
}

template <class T>
void dense_outer(const DenseRows<T>& data, const RowList& rows, const RowList& next, int64_t classes,
                 const T* factors, int64_t stride, T* sum) {
  const BlockRows<T> block(data, rows, next, true);
  const int64_t row_length = bilevel::softmax::padded_features(data.features);
  const int64_t tiles = class_tiles(classes);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = classes * t / tiles, count = classes * (t + 1) / tiles - first;
    with_classes<Outer, T, most_classes_at_once>(count, block, rows.count, factors + first, stride,
                                                 sum + first * row_length, row_length);
  }
}

}  // namespace
