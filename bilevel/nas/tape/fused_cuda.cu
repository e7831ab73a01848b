// Kernels without sums: what reads a pixel and writes it.

#include "bilevel/nas/tape/pixels.cuh"

namespace bilevel::nas::fused {
namespace {

template <typename T, bool tangent>
__global__ __launch_bounds__(mixing_threads, 4) void mix_kernel(const __grid_constant__ Mixing<T> work,
                                                                int across, int down) {
  const Node<T>& node = work.node;
  const int channels = node.shape.channels;
  const Thread t(across, down, channels);
  if (!t.active) return;
  const int c = t.channel;
  const Pixels<at_once> pixels(t, blockIdx.x * down * at_once, node.shape.pixels());
  T y[at_once] = {}, x[at_once], dot[at_once];
  for (int n = 0; n < node.norms; ++n) {
    const Norm<T>& norm = node.norm[n];
    pixels.read(norm.z, norm.pitch, c, x);
    if (tangent) read_z_dot(pixels, norm.z_dot, norm.z_dot_more, norm.pitch, c, dot);
    const Channel<T> k = channel_of(norm, c, tangent);
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const T h = k.normed(x[i]);
      y[i] +=
          tangent ? k.gain * k.normed_dot(h, dot[i]) + (k.gain_dot * h + k.shift_dot) : k.gain * h + k.shift;
    }
  }
  for (int n = 0; n < node.plains; ++n) {
    const Plain<T>& plain = node.plain[n];
    const T gain = number_or(plain.gain, T(1));
    pixels.read(tangent ? plain.x_dot : plain.x, channels, c, x);
#pragma unroll
    for (int i = 0; i < at_once; ++i) y[i] += gain * x[i];
    if (!tangent || plain.gain_dot == nullptr) continue;
    pixels.read(plain.x, channels, c, x);
#pragma unroll
    for (int i = 0; i < at_once; ++i) y[i] += *plain.gain_dot * x[i];
  }
  pixels.write(work.y, channels, c, y);
  if (work.rectified == nullptr) return;
  if (tangent) pixels.read(work.value, channels, c, x);
#pragma unroll
  for (int i = 0; i < at_once; ++i) y[i] = (tangent ? x[i] : y[i]) <= T(0) ? T(0) : y[i];  // a NaN stays
  pixels.write(work.rectified, channels, c, y);
}

template <typename T, bool tangent>
__global__ __launch_bounds__(mixing_threads, 4) void spread_kernel(const __grid_constant__ Spreading<T> work,
                                                                   int across, int down) {
  const Node<T>& node = work.node;
  const int channels = node.shape.channels;
  const Thread t(across, down, channels);
  if (!t.active) return;
  const int c = t.channel;
  const T n = static_cast<T>(node.shape.pixels());
  const Pixels<at_once> pixels(t, blockIdx.x * down * at_once, node.shape.pixels());
  T a[at_once], a_dot[at_once], x[at_once], dot[at_once];
  pixels.read(tangent ? work.adjoint_before : work.adjoint, channels, c, a);
  if (tangent) pixels.read(work.adjoint, channels, c, a_dot);
  const T* totals = tangent ? work.totals_before : work.totals;
  for (int m = 0; m < node.norms; ++m) {
    const Norm<T>& norm = node.norm[m];
    pixels.read(norm.z, norm.pitch, c, x);
    if (tangent) read_z_dot(pixels, norm.z_dot, norm.z_dot_more, norm.pitch, c, dot);
    const Channel<T> k = channel_of(norm, c, tangent);
    SpreadChannel<T> s{};
    s.mean_0 = totals[c] / n;
    s.mean_1 = totals[(1 + m) * channels + c] / n;
    if (tangent) {
      s.mean_0_dot = work.totals[c] / n;
      s.mean_1_dot = work.totals[(1 + m) * channels + c] / n;
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const T h = k.normed(x[i]);
      x[i] = tangent ? s.adjoint_dot(k, h, k.normed_dot(h, dot[i]), a[i], a_dot[i]) : s.adjoint(k, h, a[i]);
    }
    pixels.write(norm.adjoint, norm.pitch, c, x);
  }
}

constexpr int pooled_rows = 4;  // of a thread

template <typename T>
__global__ __launch_bounds__(mixing_threads) void pool_kernel(const __grid_constant__ Pooling<T> work,
                                                              int bands) {
  const Shape& shape = work.shape;
  int i = blockIdx.x * mixing_threads + threadIdx.x;
  const int c = i % shape.channels;
  i /= shape.channels;
  const int column = i % shape.width;
  i /= shape.width;
  const int top = i % bands * pooled_rows, image = i / bands;
  if (image >= shape.images) return;
  const int first = (image * shape.height * shape.width + column) * shape.channels + c;
  const PooledColumn<T> of(work.x + first, shape, column, work.transposed);
  T sums[pooled_rows + 2];
#pragma unroll
  for (int k = 0; k < pooled_rows + 2; ++k) sums[k] = of.row_sum(top + k - 1);
#pragma unroll
  for (int k = 0; k < pooled_rows; ++k) {
    const int row = top + k;
    if (row < shape.height) {
      work.y[first + row * shape.width * shape.channels] = of.of_sums(sums[k], sums[k + 1], sums[k + 2], row);
    }
  }
}

}  // namespace

template <typename T>
void mix(const Mixing<T>& work, bool tangent, Cuda at) {
  launch_mixing("mix", tangent ? mix_kernel<T, true> : mix_kernel<T, false>, work, work.node.shape, at);
}

template <typename T>
void spread(const Spreading<T>& work, bool tangent, Cuda at) {
  launch_mixing("spread", tangent ? spread_kernel<T, true> : spread_kernel<T, false>, work, work.node.shape,
                at);
}

template <typename T>
void pool(const Pooling<T>& work, Cuda at) {
  const Shape& shape = work.shape;
  const int bands = (shape.height + pooled_rows - 1) / pooled_rows,
            threads = shape.images * bands * shape.width * shape.channels;
  pool_kernel<<<(threads + mixing_threads - 1) / mixing_threads, mixing_threads, 0,
                static_cast<cudaStream_t>(at.stream)>>>(work, bands);
  check("pool");
}

#define BILEVEL_FUSED(T)                                 \
  template void mix(const Mixing<T>&, bool, Cuda);       \
  template void spread(const Spreading<T>&, bool, Cuda); \
  template void pool(const Pooling<T>&, Cuda);
BILEVEL_FUSED(float)
BILEVEL_FUSED(double)
#undef BILEVEL_FUSED

}  // namespace bilevel::nas::fused
