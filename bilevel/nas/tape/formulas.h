#pragma once
// The arithmetic of one channel and of one number, for the kernels of the GPU and for the loops of the CPU
// alike, where a number is a vector of numbers (fused_loops.h).

#include "bilevel/nas/tape/fused.h"

#ifdef __CUDACC__
#define BILEVEL_BOTH __host__ __device__ inline
#else
// Always, so that no copy is left that was compiled for a newer processor than the one it may run on.
#define BILEVEL_BOTH inline __attribute__((always_inline))
#endif

namespace bilevel::nas::fused {

// What a norm knows of one of its channels.
template <typename T>
struct Channel {
  T mean, inverse, gain, shift;
  T mean_dot, moment, gain_dot, shift_dot;

  BILEVEL_BOTH T normed(T z) const { return (z - mean) * inverse; }
  // The derivative of inverse along z_dot is -inverse^2 mean(z_dot h).
  BILEVEL_BOTH T normed_dot(T h, T z_dot) const { return inverse * (z_dot - mean_dot - h * moment); }
};

template <typename T>
BILEVEL_BOTH Channel<T> channel_of(const Norm<T>& norm, int c, bool tangent) {
  Channel<T> k{};
  k.mean = norm.mean[c];
  k.inverse = norm.inverse[c];
  k.gain = norm.gain == nullptr ? T(1) : norm.gain[c * norm.gain_step];
  k.shift = norm.shift == nullptr ? T(0) : norm.shift[c];
  if (tangent) {
    k.mean_dot = norm.mean_dot[c];
    k.moment = norm.moment[c];
    k.gain_dot = norm.gain_dot == nullptr ? T(0) : norm.gain_dot[c * norm.gain_step];
    k.shift_dot = norm.shift_dot == nullptr ? T(0) : norm.shift_dot[c];
  }
  return k;
}

template <typename T>
BILEVEL_BOTH T z_dot_at(const Norm<T>& norm, long at) {
  return norm.z_dot_more == nullptr ? norm.z_dot[at] : norm.z_dot[at] + norm.z_dot_more[at];
}

template <typename T>
BILEVEL_BOTH T number_or(const T* p, T otherwise) {
  return p == nullptr ? otherwise : *p;
}

// A norm's adjoint and its tangent; the sums are means over the channel here: S_0 / n, S_1 / n.
template <typename T>
struct SpreadChannel {
  T mean_0, mean_1, mean_0_dot, mean_1_dot;

  BILEVEL_BOTH T adjoint(const Channel<T>& k, T h, T a) const {
    return k.gain * k.inverse * (a - mean_0 - h * mean_1);
  }
  BILEVEL_BOTH T adjoint_dot(const Channel<T>& k, T h, T h_dot, T a, T a_dot) const {
    const T factor_dot = (k.gain_dot - k.gain * k.inverse * k.moment) * k.inverse;
    return factor_dot * (a - mean_0 - h * mean_1) +
           k.gain * k.inverse * (a_dot - mean_0_dot - h_dot * mean_1 - h * mean_1_dot);
  }
};

// 1 / how many of a window's rows (or columns) around i lie inside 0 .. n - 1.
template <typename T>
BILEVEL_BOTH T share(int i, int n) {
  const int inside = 1 + (i > 0) + (i + 1 < n);
  return inside == 3 ? T(1) / T(3) : inside == 2 ? T(1) / T(2) : T(1);
}

// The 3 x 3 average pool of a channel, row by row: a pixel is the sum of three neighbouring rows' sums,
// divided by how many pixels its window has; transposed, every pixel is divided before the sums.
template <typename T>
struct PooledColumn {
  const T* first;  // the channel of the first row's pixel in this column
  int height, width, channels, column;
  T left, middle, right;
  bool transposed;

  BILEVEL_BOTH PooledColumn(const T* at, const Shape& shape, int column_, bool transposed_)
      : first(at),
        height(shape.height),
        width(shape.width),
        channels(shape.channels),
        column(column_),
        left(1),
        middle(1),
        right(1),
        transposed(transposed_) {
    if (!transposed) return;
    left = share<T>(column - 1, width);
    middle = share<T>(column, width);
    right = share<T>(column + 1, width);
  }
  BILEVEL_BOTH T row_sum(int row) const {
    if (row < 0 || row >= height) return T(0);
    const T* at = first + static_cast<long>(row) * width * channels;
    T sum = middle * at[0];
    if (column > 0) sum += left * at[-channels];
    if (column + 1 < width) sum += right * at[channels];
    return transposed ? sum * share<T>(row, height) : sum;
  }
  BILEVEL_BOTH T of_sums(T above, T here, T below, int row) const {
    const T sum = above + here + below;
    return transposed ? sum : sum * (share<T>(row, height) * share<T>(column, width));
  }
};

}  // namespace bilevel::nas::fused
