#include "bilevel/nas/box_pool.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace bilevel::nas {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// out[j] = in[j - 1] + in[j] + in[j + 1], zeros beyond the ends.
template <typename T>
void add_neighbours(const T* in, T* out, int64_t n) {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  out[0] = in[0] + in[1];
#pragma omp simd
  for (int64_t j = 1; j < n - 1; ++j) out[j] = in[j - 1] + in[j] + in[j + 1];
  out[n - 1] = in[n - 2] + in[n - 1];
}

// 1 / how many of a window's three rows (or columns) are there.
template <typename T>
std::vector<T> shares(int64_t n) {
  std::vector<T> result(static_cast<size_t>(n), T(1) / T(3));
  result.front() = result.back() = n == 1 ? T(1) : T(1) / T(2);
  return result;
}

// Pools planes of height x width; transposed: divides before it sums.
template <typename T>
void pool(const T* in, T* out, int64_t planes, int64_t height, int64_t width, bool transposed) {
  const std::vector<T> of_rows = shares<T>(height), of_columns = shares<T>(width);
  at::parallel_for(0, planes, 1, [&](int64_t begin, int64_t end) {
    // Rows summed along the width, with a row of zeros above and below.
    std::vector<T> sums(static_cast<size_t>((height + 2) * width), T(0)), divided(static_cast<size_t>(width));
    for (int64_t p = begin; p < end; ++p) {
      const T* plane = in + p * height * width;
      T* result = out + p * height * width;
      for (int64_t i = 0; i < height; ++i) {
        const T* row = plane + i * width;
        if (transposed) {
          const T share = of_rows[static_cast<size_t>(i)];
          const T* columns = of_columns.data();
          T* target = divided.data();
#pragma omp simd
          for (int64_t j = 0; j < width; ++j) target[j] = row[j] * (columns[j] * share);
          row = target;
        }
        add_neighbours(row, sums.data() + (i + 1) * width, width);
      }
      for (int64_t i = 0; i < height; ++i) {
        const T *above = sums.data() + i * width, *here = above + width, *below = here + width;
        T* target = result + i * width;
        if (transposed) {
#pragma omp simd
          for (int64_t j = 0; j < width; ++j) target[j] = above[j] + here[j] + below[j];
        } else {
          const T share = of_rows[static_cast<size_t>(i)];
          const T* columns = of_columns.data();
#pragma omp simd
          for (int64_t j = 0; j < width; ++j) {
            target[j] = (above[j] + here[j] + below[j]) * (columns[j] * share);
          }
        }
      }
    }
  });
}

class BoxPool : public Function<BoxPool> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& input, bool transposed) {
    ctx->saved_data["transposed"] = transposed;
    const Tensor x = input.contiguous(), y = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "average pool", [&] {
      pool<scalar_t>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.size(0) * x.size(1), x.size(2),
                     x.size(3), transposed);
    });
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& incoming) {
    return {BoxPool::apply(incoming[0], !ctx->saved_data["transposed"].toBool()), {}};
  }
};

}  // namespace

bool can_box_pool(const Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

Tensor box_pool(const Tensor& x) { return BoxPool::apply(x, false); }

}  // namespace bilevel::nas
