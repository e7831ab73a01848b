// Convolutions of each channel on its own, and max pools: a thread per number of the result, so that none of
// the sums depends on the order of execution. The twins are in depthwise_loops.h and fused_cpu.cpp.

#include "bilevel/nas/tape/pixels.cuh"

namespace bilevel::nas::fused {
namespace {

constexpr int threads_of_a_block = 256;

// Where a thread's number lies: image, row, column, channel.
struct Place {
  int image, row, column, channel;
  __device__ Place(long i, int height, int width, int channels)
      : image(0), row(0), column(0), channel(static_cast<int>(i % channels)) {
    i /= channels;
    column = static_cast<int>(i % width);
    i /= width;
    row = static_cast<int>(i % height);
    image = static_cast<int>(i / height);
  }
};

__device__ long thread_index() { return static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x; }

template <typename T>
__global__ __launch_bounds__(threads_of_a_block) void depthwise_kernel(
    const __grid_constant__ Depthwise<T> work, long size) {
  const long i = thread_index();
  if (i >= size) return;
  const Place at(i, work.height, work.width, work.outputs);
  const int channels = work.image.channels, c = at.channel % channels, taps = work.kernel * work.kernel;
  T sum = 0;
  for (int p = 0; p < work.pairs; ++p) {
    for (int k = 0; k < taps; ++k) {
      const int row = at.row * work.stride - work.padding + k / work.kernel * work.dilation,
                column = at.column * work.stride - work.padding + k % work.kernel * work.dilation;
      if (row < 0 || row >= work.image.height || column < 0 || column >= work.image.width) continue;
      const long pixel = (static_cast<long>(at.image) * work.image.height + row) * work.image.width + column;
      sum += work.x[p][pixel * channels + c] * work.weights[p][at.channel * taps + k];
    }
  }
  work.out[i] = sum;
}

template <typename T>
__global__ __launch_bounds__(threads_of_a_block) void depthwise_in_image_kernel(
    const __grid_constant__ Depthwise<T> work, long size) {
  const long i = thread_index();
  if (i >= size) return;
  const int channels = work.image.channels, taps = work.kernel * work.kernel;
  const Place at(i, work.image.height, work.image.width, channels);
  T sum = 0;
  for (int p = 0; p < work.pairs; ++p) {
    for (int k = 0; k < taps; ++k) {
      const int row = at.row + work.padding - k / work.kernel * work.dilation,
                column = at.column + work.padding - k % work.kernel * work.dilation;
      if (row < 0 || column < 0 || row % work.stride != 0 || column % work.stride != 0) continue;
      if (row / work.stride >= work.height || column / work.stride >= work.width) continue;
      const long pixel =
          (static_cast<long>(at.image) * work.height + row / work.stride) * work.width + column / work.stride;
      for (int o = at.channel; o < work.outputs; o += channels) {
        sum += work.adjoint[p][pixel * work.outputs + o] * work.weights[p][o * taps + k];
      }
    }
  }
  work.out[i] = sum;
}

// A block a weight: its threads share the result's pixels.
template <typename T>
__global__ __launch_bounds__(threads_of_a_block) void depthwise_in_weights_kernel(
    const __grid_constant__ Depthwise<T> work) {
  __shared__ double sums[threads_of_a_block];
  const int taps = work.kernel * work.kernel, o = blockIdx.x / taps, k = blockIdx.x % taps,
            channels = work.image.channels;
  const long pixels = static_cast<long>(work.image.images) * work.height * work.width;
  double sum = 0;
  for (int p = 0; p < work.pairs; ++p) {
    for (long i = threadIdx.x; i < pixels; i += threads_of_a_block) {
      const Place at(i, work.height, work.width, 1);
      const int row = at.row * work.stride - work.padding + k / work.kernel * work.dilation,
                column = at.column * work.stride - work.padding + k % work.kernel * work.dilation;
      if (row < 0 || row >= work.image.height || column < 0 || column >= work.image.width) continue;
      const long pixel = (static_cast<long>(at.image) * work.image.height + row) * work.image.width + column;
      sum += static_cast<double>(work.adjoint[p][i * work.outputs + o] *
                                 work.x[p][pixel * channels + o % channels]);
    }
  }
  sums[threadIdx.x] = sum;
  for (int step = threads_of_a_block / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
  }
  if (threadIdx.x == 0) work.out[blockIdx.x] = static_cast<T>(sums[0]);
}

template <typename T>
__global__ __launch_bounds__(threads_of_a_block) void max_pool_kernel(
    const __grid_constant__ MaxPooling<T> work, long size) {
  const long i = thread_index();
  if (i >= size) return;
  const int channels = work.image.channels;
  const Place at(i, work.height, work.width, channels);
  const T* x =
      work.x + static_cast<long>(at.image) * work.image.height * work.image.width * channels + at.channel;
  T largest = 0;
  int index = -1;
  for (int k = 0; k < work.kernel * work.kernel; ++k) {
    const int row = at.row * work.stride - work.padding + k / work.kernel,
              column = at.column * work.stride - work.padding + k % work.kernel;
    if (row < 0 || row >= work.image.height || column < 0 || column >= work.image.width) continue;
    const int pixel = row * work.image.width + column;
    const T here = x[static_cast<long>(pixel) * channels];
    if (index >= 0 && !(here > largest) && here == here) continue;  // a NaN is kept
    largest = here;
    index = pixel;
  }
  work.y[i] = largest;
  work.index[i] = index;
}

template <typename T>
__global__ __launch_bounds__(threads_of_a_block) void at_largest_kernel(
    const __grid_constant__ MaxPooling<T> work, long size) {
  const long i = thread_index();
  if (i >= size) return;
  const int channels = work.image.channels;
  const Place at(i, work.height, work.width, channels);
  const long first = static_cast<long>(at.image) * work.image.height * work.image.width;
  work.y[i] = work.x[(first + work.index[i]) * channels + at.channel];
}

// A thread a pixel of the image: it adds what the windows over it give, if it was their largest.
template <typename T>
__global__ __launch_bounds__(threads_of_a_block) void to_largest_kernel(
    const __grid_constant__ MaxPooling<T> work, long size) {
  const long i = thread_index();
  if (i >= size) return;
  const int channels = work.image.channels;
  const Place at(i, work.image.height, work.image.width, channels);
  const int pixel = at.row * work.image.width + at.column;
  T sum = 0;
  for (int k = 0; k < work.kernel * work.kernel; ++k) {
    const int row = at.row + work.padding - k / work.kernel,
              column = at.column + work.padding - k % work.kernel;
    if (row < 0 || column < 0 || row % work.stride != 0 || column % work.stride != 0) continue;
    if (row / work.stride >= work.height || column / work.stride >= work.width) continue;
    const long o = ((static_cast<long>(at.image) * work.height + row / work.stride) * work.width +
                    column / work.stride) *
                       channels +
                   at.channel;
    if (work.index[o] == pixel) sum += work.x[o];
  }
  work.y[i] = sum;
}

template <typename Work>
void launch_each(const char* name, void (*kernel)(Work, long), const Work& work, long size, Cuda at) {
  kernel<<<static_cast<unsigned>((size + threads_of_a_block - 1) / threads_of_a_block), threads_of_a_block, 0,
           static_cast<cudaStream_t>(at.stream)>>>(work, size);
  check(name);
}

template <typename Work>
long result_size(const Work& work, int channels) {
  return static_cast<long>(work.image.images) * work.height * work.width * channels;
}
inline long image_size(const Shape& image) { return static_cast<long>(image.pixels()) * image.channels; }

}  // namespace

template <typename T>
void depthwise(const Depthwise<T>& work, Cuda at) {
  launch_each("depthwise", depthwise_kernel<T>, work, result_size(work, work.outputs), at);
}
template <typename T>
void depthwise_in_image(const Depthwise<T>& work, Cuda at) {
  launch_each("depthwise in image", depthwise_in_image_kernel<T>, work, image_size(work.image), at);
}
template <typename T>
void depthwise_in_weights(const Depthwise<T>& work, Cuda at) {
  depthwise_in_weights_kernel<T><<<work.outputs * work.kernel * work.kernel, threads_of_a_block, 0,
                                   static_cast<cudaStream_t>(at.stream)>>>(work);
  check("depthwise in weights");
}
template <typename T>
void max_pool(const MaxPooling<T>& work, Cuda at) {
  launch_each("max pool", max_pool_kernel<T>, work, result_size(work, work.image.channels), at);
}
template <typename T>
void at_largest(const MaxPooling<T>& work, Cuda at) {
  launch_each("at largest", at_largest_kernel<T>, work, result_size(work, work.image.channels), at);
}
template <typename T>
void to_largest(const MaxPooling<T>& work, Cuda at) {
  launch_each("to largest", to_largest_kernel<T>, work, image_size(work.image), at);
}

#define BILEVEL_FUSED(T)                                         \
  template void depthwise(const Depthwise<T>&, Cuda);            \
  template void depthwise_in_image(const Depthwise<T>&, Cuda);   \
  template void depthwise_in_weights(const Depthwise<T>&, Cuda); \
  template void max_pool(const MaxPooling<T>&, Cuda);            \
  template void at_largest(const MaxPooling<T>&, Cuda);          \
  template void to_largest(const MaxPooling<T>&, Cuda);
BILEVEL_FUSED(float)
BILEVEL_FUSED(double)
#undef BILEVEL_FUSED

}  // namespace bilevel::nas::fused
