#pragma once
// What the kernels over pixels share. Every thread keeps to one channel: what a norm knows of it is loaded
// once for several pixels, and neighbouring threads read neighbouring channels.

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "bilevel/nas/tape/formulas.h"

namespace bilevel::nas::fused {
namespace {

constexpr int mixing_threads = 256, summing_threads = 256;
constexpr int at_once = 4;         // pixels of a thread whose numbers are on their way together,
constexpr int summed_at_once = 8;  // and where there are sums, which want fewer threads

// Blocks of `across` channels by `down` pixels.
struct Tiling {
  int across, down, chunks;
  Tiling(int channels, int threads) : across(channels), down(0), chunks((channels + 127) / 128) {
    across = (channels + chunks - 1) / chunks;
    down = threads / across;
  }
};

struct Thread {
  int channel, row, down;
  bool active;
  __device__ Thread(int across, int rows, int channels)
      : channel(blockIdx.y * across + threadIdx.x % across), row(threadIdx.x / across), down(rows) {
    active = row < down && channel < channels;
  }
};

// The pixels of a thread in the batch that begins at `first`. Those beyond the end stand for the first one:
// reading without a condition keeps several numbers on their way at a time.
template <int count>
struct Pixels {
  int pixel[count];
  int end;
  __device__ Pixels(const Thread& t, int first, int pixels) : end(0) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int p = first + i * t.down + t.row;
      pixel[i] = p < pixels ? p : 0;
      if (p < pixels) end = i + 1;
    }
  }
  template <typename T>
  __device__ void read(const T* x, int pitch, int c, T (&out)[count]) const {
#pragma unroll
    for (int i = 0; i < count; ++i) out[i] = x[pixel[i] * pitch + c];
  }
  template <typename T>
  __device__ void add(const T* x, int pitch, int c, T (&out)[count]) const {
#pragma unroll
    for (int i = 0; i < count; ++i) out[i] += x[pixel[i] * pitch + c];
  }
  template <typename T>
  __device__ void write(T* x, int pitch, int c, const T (&in)[count]) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (i < end) x[pixel[i] * pitch + c] = in[i];
    }
  }
};

// z's tangent is a sum of one or two tensors.
template <typename T, int count>
__device__ void read_z_dot(const Pixels<count>& pixels, const T* one, const T* more, int pitch, int c,
                           T (&out)[count]) {
  pixels.read(one, pitch, c, out);
  if (more != nullptr) pixels.add(more, pitch, c, out);
}

// A feature's adjoint at a thread's pixels.
template <typename T, bool tangent, int count>
__device__ void gather_at(const Sources<T>& s, const Shape& shape, const Pixels<count>& pixels, int c,
                          T (&a)[count]) {
  const int channels = shape.channels;
  T x[count];
#pragma unroll
  for (int i = 0; i < count; ++i) a[i] = T(0);
  const auto add_weighted = [&](int n) {
    const auto& w = s.weight[n];
    const T gain = number_or(w.gain, T(1));
    pixels.read(w.adjoint, channels, c, x);
#pragma unroll
    for (int i = 0; i < count; ++i) a[i] += gain * x[i];
    if (!tangent || w.gain_dot == nullptr) return;
    pixels.read(w.adjoint_before, channels, c, x);
#pragma unroll
    for (int i = 0; i < count; ++i) a[i] += *w.gain_dot * x[i];
  };
  for (int n = 0; n < s.rectifieds; ++n) pixels.add(s.rectified[n], channels, c, a);
  for (int n = 0; n < s.rectified_weights; ++n) add_weighted(n);
  if (s.rectifies()) {
    pixels.read(s.feature, channels, c, x);
#pragma unroll
    for (int i = 0; i < count; ++i) a[i] = x[i] <= T(0) ? T(0) : a[i];  // where it is NaN, too
  }
  for (int n = 0; n < s.directs; ++n) pixels.add(s.direct[n], channels, c, a);
  for (int n = s.rectified_weights; n < s.weighted; ++n) add_weighted(n);
#pragma unroll
  for (int i = 0; i < count; ++i) a[i] = i < pixels.end ? a[i] : T(0);
}

inline int blocks_for(const Shape& shape, int batch) { return (shape.pixels() + batch - 1) / batch; }

inline void check(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA kernel ") + kernel + ": " + cudaGetErrorString(error));
  }
}

template <typename Work>
void launch_mixing(const char* name, void (*kernel)(Work, int, int), const Work& work, const Shape& shape,
                   Cuda at) {
  const Tiling tiling(shape.channels, mixing_threads);
  const dim3 grid(blocks_for(shape, tiling.down * at_once), tiling.chunks);
  kernel<<<grid, mixing_threads, 0, static_cast<cudaStream_t>(at.stream)>>>(work, tiling.across, tiling.down);
  check(name);
}

}  // namespace
}  // namespace bilevel::nas::fused
