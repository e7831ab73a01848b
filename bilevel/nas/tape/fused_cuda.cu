// Every thread keeps to one channel: what a norm knows of it is loaded once for several pixels, and
// neighbouring threads read neighbouring channels.

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
  for (int i = 0; i < at_once; ++i) y[i] = (tangent ? x[i] : y[i]) > T(0) ? y[i] : T(0);
  pixels.write(work.rectified, channels, c, y);
}

// Sums of `rows` numbers a channel, of which every thread has its own in shared[row * blockDim.x], over the
// block; a second kernel adds what the blocks leave. Partial sums of one channel lie side by side.
__device__ void leave_sums(const double* shared, int rows, int across, int down, int channels,
                           double* partial) {
  __syncthreads();
  for (int first = 0; first < rows * across; first += blockDim.x / 4) {  // four threads a sum
    const int out = first + threadIdx.x / 4, row = out / across, x = out % across;
    double sum = 0;
    if (row < rows) {
      for (int y = threadIdx.x % 4; y < down; y += 4) sum += shared[row * blockDim.x + y * across + x];
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    const int c = blockIdx.y * across + x;
    if (threadIdx.x % 4 == 0 && row < rows && c < channels) {
      partial[static_cast<long>(row * channels + c) * gridDim.x + blockIdx.x] = sum;
    }
  }
}

// The sum of one row and channel, by a warp.
__device__ double add_blocks(const double* partial, int blocks) {
  double sum = 0;
#pragma unroll 4
  for (int b = threadIdx.x % 32; b < blocks; b += 32) sum += partial[b];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

template <typename T>
__global__ __launch_bounds__(256) void totals_kernel(const double* partial, int blocks, int count,
                                                     T* totals) {
  const int out = blockIdx.x * 8 + threadIdx.x / 32;
  if (out >= count) return;
  const double sum = add_blocks(partial + static_cast<long>(out) * blocks, blocks);
  if (threadIdx.x % 32 == 0) totals[out] = static_cast<T>(sum);
}

extern __shared__ double shared_sums[];

template <typename T, bool tangent>
__global__ __launch_bounds__(summing_threads) void statistics_kernel(
    const __grid_constant__ Statistics<T> work, int across, int down) {
  const int which = blockIdx.z, channels = work.shape.channels, pixels = work.shape.pixels();
  const Thread t(across, down, channels);
  const T* z = work.z[which];
  double one = 0, two = 0;
  if (t.active) {
    // Sums about some value of the channel keep their digits where the mean is large.
    const T about = tangent ? work.mean[which][t.channel] : z[t.channel];
    const T inverse = tangent ? work.inverse[which][t.channel] : T(1);
    const T *a = work.z_dot[which], *b = work.z_dot_more[which];
    for (int first = blockIdx.x * down * summed_at_once; first < pixels;
         first += gridDim.x * down * summed_at_once) {
      const Pixels<summed_at_once> batch(t, first, pixels);
      T value[summed_at_once], other[summed_at_once];
      batch.read(z, channels, t.channel, value);
      if (tangent) read_z_dot(batch, a, b, channels, t.channel, other);
#pragma unroll
      for (int i = 0; i < summed_at_once; ++i) {
        const T centred = i < batch.end ? value[i] - about : T(0);
        const T of = tangent ? (i < batch.end ? other[i] : T(0)) : centred;
        one += static_cast<double>(of);
        two += static_cast<double>(of * inverse) * static_cast<double>(centred);
      }
    }
  }
  shared_sums[threadIdx.x] = one;
  shared_sums[blockDim.x + threadIdx.x] = two;
  leave_sums(shared_sums, 2, across, down, channels,
             work.partial + static_cast<long>(which) * most_blocks * 2 * channels);
}

template <typename T, bool tangent>
__global__ __launch_bounds__(256) void end_statistics_kernel(const __grid_constant__ Statistics<T> work,
                                                             int blocks) {
  const int which = blockIdx.y, channels = work.shape.channels, c = blockIdx.x * 8 + threadIdx.x / 32;
  if (c >= channels) return;
  const double* partial = work.partial + static_cast<long>(which) * most_blocks * 2 * channels;
  const double n = work.shape.pixels();
  const double first = add_blocks(partial + static_cast<long>(c) * blocks, blocks) / n,
               second = add_blocks(partial + static_cast<long>(channels + c) * blocks, blocks) / n;
  if (threadIdx.x % 32 > 0) return;
  if (tangent) {
    work.mean_dot[which][c] = static_cast<T>(first);
    work.moment[which][c] = static_cast<T>(second);
  } else {
    work.mean[which][c] = static_cast<T>(static_cast<double>(work.z[which][c]) + first);
    work.inverse[which][c] = static_cast<T>(1 / sqrt(fmax(second - first * first, 0.0) + work.epsilon));
  }
}

template <typename T, bool tangent, int count>
__device__ void gather_at(const Sources<T>& s, const Shape& shape, const Pixels<count>& pixels, int c,
                          T (&a)[count]) {
  const int channels = shape.channels;
  T x[count];
#pragma unroll
  for (int i = 0; i < count; ++i) a[i] = T(0);
  for (int n = 0; n < s.rectifieds; ++n) pixels.add(s.rectified[n], channels, c, a);
  if (s.rectifieds > 0) {
    pixels.read(s.feature, channels, c, x);
#pragma unroll
    for (int i = 0; i < count; ++i) a[i] = x[i] > T(0) ? a[i] : T(0);
  }
  for (int n = 0; n < s.directs; ++n) pixels.add(s.direct[n], channels, c, a);
  for (int n = 0; n < s.weighted; ++n) {
    const auto& w = s.weight[n];
    const T gain = number_or(w.gain, T(1));
    pixels.read(w.adjoint, channels, c, x);
#pragma unroll
    for (int i = 0; i < count; ++i) a[i] += gain * x[i];
    if (!tangent || w.gain_dot == nullptr) continue;
    pixels.read(w.adjoint_before, channels, c, x);
#pragma unroll
    for (int i = 0; i < count; ++i) a[i] += *w.gain_dot * x[i];
  }
#pragma unroll
  for (int i = 0; i < count; ++i) a[i] = i < pixels.end ? a[i] : T(0);
}

// What a mix reads of its terms is read a second time here, to be summed with the adjoint. Terms are read two
// at a time: where tensors are small, waiting for memory is all there is.
template <typename T, bool tangent, int count>
__global__ __launch_bounds__(summing_threads, 3) void gather_kernel(const __grid_constant__ Gathering<T> work,
                                                                    int across, int down) {
  const Node<T>& node = work.node;
  const int channels = node.shape.channels, rows = 1 + node.norms + node.plains;
  const Thread t(across, down, channels);
  const int c = t.channel;
  double* mine = shared_sums + threadIdx.x;
  for (int row = 0; row < rows; ++row) mine[row * blockDim.x] = 0;
  for (int first = blockIdx.x * down * count; t.active && first < node.shape.pixels();
       first += gridDim.x * down * count) {
    const Pixels<count> pixels(t, first, node.shape.pixels());
    T a[count], before[count], x[2][count], dot[2][count];
    gather_at<T, tangent>(work.sources, node.shape, pixels, c, a);
    pixels.write(work.adjoint, channels, c, a);
    if (tangent) pixels.read(work.adjoint_before, channels, c, before);
    double sums[2] = {};
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (i >= pixels.end) before[i] = T(0);
      sums[0] += static_cast<double>(a[i]);
    }
    mine[0] += sums[0];
    for (int n = 0; n < node.norms; n += 2) {
      const int m[2] = {n, n + 1 < node.norms ? n + 1 : n};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const Norm<T>& norm = node.norm[m[k]];
        pixels.read(norm.z, norm.pitch, c, x[k]);
        if (tangent) read_z_dot(pixels, norm.z_dot, norm.z_dot_more, norm.pitch, c, dot[k]);
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const Channel<T> of = channel_of(node.norm[m[k]], c, tangent);
        sums[k] = 0;
#pragma unroll
        for (int i = 0; i < count; ++i) {
          const T h = of.normed(x[k][i]);
          sums[k] +=
              static_cast<double>(tangent ? a[i] * h + before[i] * of.normed_dot(h, dot[k][i]) : a[i] * h);
        }
      }
      mine[(1 + n) * blockDim.x] += sums[0];
      if (n + 1 < node.norms) mine[(2 + n) * blockDim.x] += sums[1];
    }
    for (int n = 0; n < node.plains; n += 2) {
      const int m[2] = {n, n + 1 < node.plains ? n + 1 : n};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        pixels.read(node.plain[m[k]].x, channels, c, x[k]);
        if (tangent) pixels.read(node.plain[m[k]].x_dot, channels, c, dot[k]);
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        sums[k] = 0;
#pragma unroll
        for (int i = 0; i < count; ++i) {
          sums[k] += static_cast<double>(tangent ? a[i] * x[k][i] + before[i] * dot[k][i] : a[i] * x[k][i]);
        }
      }
      mine[(1 + node.norms + n) * blockDim.x] += sums[0];
      if (n + 1 < node.plains) mine[(2 + node.norms + n) * blockDim.x] += sums[1];
    }
  }
  leave_sums(shared_sums, rows, across, down, channels, work.sums.partial);
}

template <typename T, bool tangent>
__global__ __launch_bounds__(mixing_threads,
                             4) void gather_alone_kernel(const __grid_constant__ Gathering<T> work,
                                                         int across, int down) {
  const Shape& shape = work.node.shape;
  const Thread t(across, down, shape.channels);
  if (!t.active) return;
  const Pixels<at_once> pixels(t, blockIdx.x * down * at_once, shape.pixels());
  T a[at_once];
  gather_at<T, tangent>(work.sources, shape, pixels, t.channel, a);
  pixels.write(work.adjoint, shape.channels, t.channel, a);
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

int blocks_for(const Shape& shape, int batch) { return (shape.pixels() + batch - 1) / batch; }

void check(const char* kernel) {
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

// Returns how many blocks share a sum.
template <typename Work>
int launch_summing(const char* name, void (*kernel)(Work, int, int), const Work& work, const Shape& shape,
                   int rows, int deep, int pixels_at_once, Cuda at) {
  const Tiling tiling(shape.channels, summing_threads);
  const int wanted = blocks_for(shape, tiling.down * pixels_at_once);
  const dim3 grid(wanted < most_blocks ? wanted : most_blocks, tiling.chunks, deep);
  const size_t bytes = sizeof(double) * rows * summing_threads;
  kernel<<<grid, summing_threads, bytes, static_cast<cudaStream_t>(at.stream)>>>(work, tiling.across,
                                                                                 tiling.down);
  check(name);
  return static_cast<int>(grid.x);
}

}  // namespace

template <typename T>
void statistics(const Statistics<T>& work, bool tangent, Cuda at) {
  const int blocks =
      launch_summing("statistics", tangent ? statistics_kernel<T, true> : statistics_kernel<T, false>, work,
                     work.shape, 2, work.tensors, summed_at_once, at);
  const dim3 grid((work.shape.channels + 7) / 8, work.tensors);
  auto* const end = tangent ? end_statistics_kernel<T, true> : end_statistics_kernel<T, false>;
  end<<<grid, 256, 0, static_cast<cudaStream_t>(at.stream)>>>(work, blocks);
  check("end of statistics");
}

template <typename T>
void mix(const Mixing<T>& work, bool tangent, Cuda at) {
  launch_mixing("mix", tangent ? mix_kernel<T, true> : mix_kernel<T, false>, work, work.node.shape, at);
}

template <typename T>
void gather(const Gathering<T>& work, bool tangent, Cuda at) {
  if (work.sums.partial == nullptr) {
    launch_mixing("gather", tangent ? gather_alone_kernel<T, true> : gather_alone_kernel<T, false>, work,
                  work.node.shape, at);
    return;
  }
  const int rows = 1 + work.node.norms + work.node.plains, count = rows * work.node.shape.channels;
  // As many blocks as can share a sum, where the tensor has work for them.
  const Tiling tiling(work.node.shape.channels, summing_threads);
  const int pixels = blocks_for(work.node.shape, tiling.down * most_blocks);  // a thread's
  using Kernel = void (*)(Gathering<T>, int, int);
  const Kernel kernels[2][3] = {
      {gather_kernel<T, false, 2>, gather_kernel<T, false, 4>, gather_kernel<T, false, 8>},
      {gather_kernel<T, true, 2>, gather_kernel<T, true, 4>, gather_kernel<T, true, 8>}};
  const int which = pixels <= 2 ? 0 : pixels <= 4 ? 1 : 2;
  const int blocks = launch_summing("gather", kernels[tangent ? 1 : 0][which], work, work.node.shape, rows, 1,
                                    2 << which, at);
  totals_kernel<<<(count + 7) / 8, 256, 0, static_cast<cudaStream_t>(at.stream)>>>(work.sums.partial, blocks,
                                                                                   count, work.sums.totals);
  check("totals");
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

#define BILEVEL_FUSED(T)                                      \
  template void statistics(const Statistics<T>&, bool, Cuda); \
  template void mix(const Mixing<T>&, bool, Cuda);            \
  template void gather(const Gathering<T>&, bool, Cuda);      \
  template void spread(const Spreading<T>&, bool, Cuda);      \
  template void pool(const Pooling<T>&, Cuda);
BILEVEL_FUSED(float)
BILEVEL_FUSED(double)
#undef BILEVEL_FUSED

}  // namespace bilevel::nas::fused
