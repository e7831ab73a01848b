#include "bilevel/meta/head_products.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <Eigen/Core>
#include <algorithm>

namespace bilevel::meta {
namespace {

template <typename Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Task i's matrix; rows lie behind each other.
template <typename Scalar>
Eigen::Map<Matrix<Scalar>> of_task(const Tensor& t, int64_t i) {
  return {t.data_ptr<Scalar>() + i * t.stride(0), t.size(1), t.size(2)};
}

bool can(const Tensor& t) {
  return t.device().is_cpu() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble);
}

// Rows behind each other, wherever the tasks begin: heads are parts of longer blocks.
Tensor with_rows(const Tensor& t) {
  return t.stride(2) == 1 && t.stride(1) == t.size(2) ? t.detach() : t.detach().contiguous();
}

template <typename Work>
void for_each_task(const Tensor& t, const Work& work) {
  const int64_t each = std::max<int64_t>(1, 20000 / std::max<int64_t>(1, t.size(1) * t.size(2)));
  at::parallel_for(0, t.size(0), each, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) work(i);
  });
}

}  // namespace

Tensor head_outputs(const Tensor& features, const Tensor& matrix, const Tensor& bias) {
  if (!can(features)) return at::baddbmm(bias.unsqueeze(1), features, matrix.transpose(1, 2));
  const Tensor f = with_rows(features), w = with_rows(matrix);
  const Tensor result = bias.detach().unsqueeze(1).expand({f.size(0), f.size(1), w.size(1)}).contiguous();
  AT_DISPATCH_FLOATING_TYPES(f.scalar_type(), "head_outputs", [&] {
    for_each_task(f, [&](int64_t i) {
      of_task<scalar_t>(result, i).noalias() += of_task<scalar_t>(f, i) * of_task<scalar_t>(w, i).transpose();
    });
  });
  return result;
}

Tensor head_pullback(const Tensor& slopes, const Tensor& features) {
  if (!can(slopes)) {
    return at::cat({at::bmm(slopes.transpose(1, 2), features).flatten(1), slopes.sum(1)}, 1);
  }
  const Tensor s = with_rows(slopes), f = with_rows(features);
  const int64_t outputs = s.size(2), numbers = f.size(2);
  const Tensor result = at::empty({s.size(0), outputs * (numbers + 1)}, s.options());
  AT_DISPATCH_FLOATING_TYPES(s.scalar_type(), "head_pullback", [&] {
    for_each_task(f, [&](int64_t i) {
      scalar_t* block = result.data_ptr<scalar_t>() + i * result.stride(0);
      const auto task_slopes = of_task<scalar_t>(s, i);
      Eigen::Map<Matrix<scalar_t>>(block, outputs, numbers).noalias() =
          task_slopes.transpose() * of_task<scalar_t>(f, i);
      Eigen::Map<Matrix<scalar_t>>(block + outputs * numbers, 1, outputs) = task_slopes.colwise().sum();
    });
  });
  return result;
}

Tensor feature_pullback(const Tensor& slopes, const Tensor& matrix) {
  if (!can(slopes)) return at::bmm(slopes, matrix);
  const Tensor s = with_rows(slopes), w = with_rows(matrix);
  const Tensor result = at::empty({s.size(0), s.size(1), w.size(2)}, s.options());
  AT_DISPATCH_FLOATING_TYPES(s.scalar_type(), "feature_pullback", [&] {
    for_each_task(result, [&](int64_t i) {
      of_task<scalar_t>(result, i).noalias() = of_task<scalar_t>(s, i) * of_task<scalar_t>(w, i);
    });
  });
  return result;
}

}  // namespace bilevel::meta
