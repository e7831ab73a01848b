// Kernels with sums over pixels: statistics of norms, and adjoints with what their mixes sum.

#include "bilevel/nas/tape/pixels.cuh"

namespace bilevel::nas::fused {
namespace {

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
    const double variance = second - first * first;
    // fmax would turn a NaN into 0.
    work.inverse[which][c] = static_cast<T>(1 / sqrt((variance < 0 ? 0.0 : variance) + work.epsilon));
  }
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

#define BILEVEL_FUSED(T)                                      \
  template void statistics(const Statistics<T>&, bool, Cuda); \
  template void gather(const Gathering<T>&, bool, Cuda);
BILEVEL_FUSED(float)
BILEVEL_FUSED(double)
#undef BILEVEL_FUSED

}  // namespace bilevel::nas::fused
