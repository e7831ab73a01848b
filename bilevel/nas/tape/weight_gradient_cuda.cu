// out[o, tap, i] = sum over pixels p of adjoint[p, o] image[p + tap, i]: a matrix product whose inner
// dimension are the pixels. A block takes a share of the pixels for up to 48 outputs by 16 channels; each of
// its nine warps has one tap. A second kernel adds the shares in order, so that the sum is the same every
// time.

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "bilevel/nas/tape/tensor_cores.h"

namespace bilevel::nas::fused {
namespace {

constexpr int warps = 9, threads = 32 * warps;
constexpr int deep = 16;               // channels of a block
constexpr int image_pitch = deep + 8;  // so that neighbouring pixels fall into other banks
constexpr int wanted_blocks = 128;

struct Split {
  int tall, wide;  // 16 * tall outputs a block, and how many blocks make up all
  int rows;        // of an image at a time
  int shares;      // of the pixels
  explicit Split(const WeightGradient& w) {
    const int sixteens = w.outputs / 16;
    tall = sixteens % 3 == 0 ? 3 : sixteens % 2 == 0 ? 2 : 1;
    wide = sixteens / tall;
    rows = w.width >= 128 ? 1 : 128 / w.width;
    if (rows > w.height) rows = w.height;
    const int tiles = w.pairs * w.images * ((w.height + rows - 1) / rows);
    shares = wanted_blocks / (wide * (w.channels / deep));
    if (shares < 1) shares = 1;
    if (shares > tiles) shares = tiles;
  }
  size_t shared_bytes(const WeightGradient& w) const {
    const size_t adjoint = static_cast<size_t>(rows) * w.width * (16 * tall + 8);
    const size_t halo = static_cast<size_t>(w.kernel - 1);
    const size_t image = (rows + halo) * (w.width + halo) * image_pitch;
    const size_t tiles = 2 * sizeof(float) * (adjoint + image),
                 sums = sizeof(float) * warps * 16 * tall * deep;
    return w.kernel == 1 && sums > tiles ? sums : tiles;
  }
};

__device__ unsigned to_tf32(float x) {
  unsigned y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

__device__ void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Sixteen bytes into shared memory, zeros where `there` is false.
__device__ void fetch(float* to, const float* from, bool there) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes));
}

extern __shared__ float shared_tiles[];

template <int tall, int kernel>
__global__ __launch_bounds__(threads) void weight_gradient_kernel(const __grid_constant__ WeightGradient work,
                                                                  int rows) {
  constexpr int pitch = 16 * tall + 8, halo = kernel - 1, taps = kernel * kernel;
  const int width = work.width, height = work.height, pixels = rows * width;
  const int first_output = blockIdx.y * 16 * tall, first_channel = blockIdx.z * deep;
  const int bands = (height + rows - 1) / rows, tiles = work.images * bands, all = work.pairs * tiles;
  const int begin = static_cast<int>(static_cast<long>(all) * blockIdx.x / gridDim.x),
            end = static_cast<int>(static_cast<long>(all) * (blockIdx.x + 1) / gridDim.x);
  const int stage = pixels * pitch + (rows + halo) * (width + halo) * image_pitch;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp = threadIdx.x / 32, tap_row = kernel == 1 ? 0 : warp / 3,
            tap_column = kernel == 1 ? 0 : warp % 3;

  // Division of small numbers by numbers that only the launch knows.
  const float per_row = 1.0f / static_cast<float>(width),
              per_wide_row = 1.0f / static_cast<float>(width + halo);
  const auto row_of = [](int k, float per) { return static_cast<int>((static_cast<float>(k) + 0.5f) * per); };

  const auto load = [&](int tile, float* to) {
    const int pair = tile / tiles, n = tile % tiles / bands, top = tile % bands * rows;
    const float* adjoint = work.adjoint[pair];
    const float* image = work.image[pair];
    for (int i = threadIdx.x; i < pixels * 4 * tall; i += threads) {
      const int k = i / (4 * tall), q = i % (4 * tall), y = top + row_of(k, per_row);
      const bool there = y < height;
      const long p = there ? (static_cast<long>(n) * height + top) * width + k : 0;
      fetch(to + k * pitch + 4 * q, adjoint + p * work.outputs + first_output + 4 * q, there);
    }
    to += pixels * pitch;
    for (int i = threadIdx.x; i < (rows + halo) * (width + halo) * 4; i += threads) {
      const int k = i / 4, q = i % 4, row = row_of(k, per_wide_row);
      const int y = top - halo / 2 + row, x = k - row * (width + halo) - halo / 2;
      const bool there = y >= 0 && y < height && x >= 0 && x < width;
      const long p = there ? (static_cast<long>(n) * height + y) * width + x : 0;
      fetch(to + k * image_pitch + 4 * q, image + p * work.channels + first_channel + 4 * q, there);
    }
    asm volatile("cp.async.commit_group;");
  };

  float sums[tall][2][4] = {};
  if (begin < end) load(begin, shared_tiles);
  for (int tile = begin; tile < end; ++tile) {
    const int odd = (tile - begin) % 2;
    if (tile + 1 < end) {
      load(tile + 1, shared_tiles + (1 - odd) * stage);
      asm volatile("cp.async.wait_group 1;");
    } else {
      asm volatile("cp.async.wait_group 0;");
    }
    __syncthreads();
    const float* adjoint = shared_tiles + odd * stage;
    const float* image = adjoint + pixels * pitch;
#pragma unroll 2
    for (int k = kernel == 1 ? 8 * warp : 0; k < pixels; k += kernel == 1 ? 8 * warps : 8) {
      const float* a = adjoint + (k + t) * pitch + g;
      const int pixel =
          kernel == 1 ? k : k + halo * row_of(k, per_row) + tap_row * (width + halo) + tap_column;
      const float* b = image + (pixel + t) * image_pitch + g;
      unsigned right[2][2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        right[n][0] = to_tf32(b[8 * n]);
        right[n][1] = to_tf32(b[8 * n + 4 * image_pitch]);
      }
#pragma unroll
      for (int m = 0; m < tall; ++m) {
        const unsigned left[4] = {to_tf32(a[16 * m]), to_tf32(a[16 * m + 8]), to_tf32(a[16 * m + 4 * pitch]),
                                  to_tf32(a[16 * m + 8 + 4 * pitch])};
#pragma unroll
        for (int n = 0; n < 2; ++n) multiply_add(sums[m][n], left, right[n]);
      }
    }
    __syncthreads();  // the next tile but one goes where this one was
  }

  const int tap = 3 * tap_row + tap_column;
  float* out = work.partial + static_cast<long>(blockIdx.x) * work.outputs * taps * work.channels;
#pragma unroll
  for (int m = 0; m < tall; ++m) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int output = 16 * m + g + 8 * (i / 2), channel = 8 * n + 2 * t + i % 2;
        if (kernel == 1) {
          shared_tiles[(warp * 16 * tall + output) * deep + channel] = sums[m][n][i];
        } else {
          out[(static_cast<long>(first_output + output) * taps + tap) * work.channels + first_channel +
              channel] = sums[m][n][i];
        }
      }
    }
  }
  if (kernel != 1) return;
  __syncthreads();  // then the warps' sums
  for (int i = threadIdx.x; i < 16 * tall * deep; i += threads) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += shared_tiles[w * 16 * tall * deep + i];
    out[static_cast<long>(first_output + i / deep) * work.channels + first_channel + i % deep] = sum;
  }
}

constexpr int side_by_side = 32, share_groups = 8;

__global__ __launch_bounds__(side_by_side* share_groups) void add_shares_kernel(
    const __grid_constant__ ShareSums work) {
  __shared__ float sums[share_groups][side_by_side];
  int low = 0, high = work.gradients;  // whose block this is
  while (low + 1 < high) {
    const int middle = (low + high) / 2;
    if (static_cast<int>(blockIdx.x) < work.gradient[middle].first_block) {
      high = middle;
    } else {
      low = middle;
    }
  }
  const auto& g = work.gradient[low];
  const int x = threadIdx.x % side_by_side, group = threadIdx.x / side_by_side;
  const int i = (blockIdx.x - g.first_block) * side_by_side + x;
  float sum = 0;
  if (i < g.size) {
#pragma unroll 4
    for (int s = group; s < g.shares; s += share_groups) sum += g.partial[static_cast<long>(s) * g.size + i];
  }
  sums[group][x] = sum;
  __syncthreads();
  if (group > 0 || i >= g.size) return;
  for (int s = 1; s < share_groups; ++s) sum += sums[s][x];
  g.out[i] = sum;
}

void check(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA kernel ") + kernel + ": " + cudaGetErrorString(error));
  }
}

}  // namespace

bool fits_tensor_cores(const WeightGradient& work) {
  return (work.kernel == 1 || work.kernel == 3) && work.channels % deep == 0 && work.outputs % 16 == 0 &&
         work.width % 8 == 0 && Split(work).shared_bytes(work) <= 110000;
}

int shares_of(const WeightGradient& work) { return Split(work).shares; }

void weight_gradient(const WeightGradient& work, void* stream) {
  const Split split(work);
  const size_t bytes = split.shared_bytes(work);
  using Kernel = void (*)(WeightGradient, int);
  const Kernel large[] = {weight_gradient_kernel<1, 3>, weight_gradient_kernel<2, 3>,
                          weight_gradient_kernel<3, 3>},
               small[] = {weight_gradient_kernel<1, 1>, weight_gradient_kernel<2, 1>,
                          weight_gradient_kernel<3, 1>};
  const Kernel kernel = (work.kernel == 3 ? large : small)[split.tall - 1];
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  const dim3 grid(split.shares, split.wide, work.channels / deep);
  auto* const on = static_cast<cudaStream_t>(stream);
  kernel<<<grid, threads, bytes, on>>>(work, split.rows);
  check("weight gradient");
}

void add_shares(ShareSums work, void* stream) {
  int blocks = 0;
  for (int i = 0; i < work.gradients; ++i) {
    work.gradient[i].first_block = blocks;
    blocks += (work.gradient[i].size + side_by_side - 1) / side_by_side;
  }
  add_shares_kernel<<<blocks, side_by_side * share_groups, 0, static_cast<cudaStream_t>(stream)>>>(work);
  check("sums of weight gradients");
}

}  // namespace bilevel::nas::fused
