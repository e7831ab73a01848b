// Consecutive numbers in vector registers, by the compilers' vector types. Included by softmax_loops.h, under
// its rules.

namespace {

// The sum of the lanes, by halves.
template <class Vector>
BILEVEL_INLINE auto sum_of_lanes(const Vector& v) {
  constexpr auto lanes = sizeof(v) / sizeof(v[0]);
  if constexpr (lanes == 1) {
    return v[0];
  } else if constexpr (lanes == 2) {
    return v[0] + v[1];
  } else if constexpr (lanes == 4) {
    return sum_of_lanes(__builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3));
  } else if constexpr (lanes == 8) {
    return sum_of_lanes(__builtin_shufflevector(v, v, 0, 1, 2, 3) +
                        __builtin_shufflevector(v, v, 4, 5, 6, 7));
  } else {
    return sum_of_lanes(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                        __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
  }
}

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
  BILEVEL_INLINE void add_product(const Lanes& a, const Lanes& b) {
    head += a.head * b.head;
    tail.add_product(a.tail, b.tail);
  }
  BILEVEL_INLINE T sum() const { return sum_of_lanes(head) + tail.sum(); }
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
  BILEVEL_INLINE void add_product(const Lanes& /*a*/, const Lanes& /*b*/) {}
  BILEVEL_INLINE T sum() const { return 0; }
};

// A constant stride S, or 0 for one that is known at run time and walked in tiles of 32.
template <int S>
constexpr int tile_of = S == 0 ? 32 : S;

}  // namespace
