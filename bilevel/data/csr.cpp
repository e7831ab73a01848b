#include "bilevel/data/csr.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace bilevel {
namespace {

[[noreturn]] void invalid(std::string_view what, const std::string& why) {
  throw std::invalid_argument(fmt::format("{}: {}", what, why));
}

void check_tensor(std::string_view what, std::string_view name, const Tensor& tensor) {
  if (!tensor.defined()) invalid(what, fmt::format("{} is undefined", name));
  if (tensor.dim() != 1 || !tensor.is_contiguous() || !tensor.device().is_cpu()) {
    invalid(what, fmt::format("{} must be one contiguous dimension on the CPU", name));
  }
}

at::TensorOptions cpu(at::ScalarType type) { return at::TensorOptions().dtype(type).device(at::kCPU); }

SparseMatrix with_values(const SparseMatrix& matrix, Tensor value) {
  SparseMatrix result = matrix;
  result.value = std::move(value);
  return result;
}

}  // namespace

void SparseMatrix::validate(std::string_view what) const {
  if (rows < 0 || columns < 0 || columns > std::numeric_limits<int32_t>::max()) {
    invalid(what, fmt::format("{} x {}: needs 0 or more rows and 0 to 2^31-1 columns", rows, columns));
  }
  check_tensor(what, "row_start", row_start);
  check_tensor(what, "column", column);
  check_tensor(what, "value", value);
  if (row_start.scalar_type() != at::kLong || column.scalar_type() != at::kInt ||
      (value.scalar_type() != at::kFloat && value.scalar_type() != at::kDouble)) {
    invalid(what, fmt::format("row_start, column and value are {}, {} and {}; must be int64, int32 and float "
                              "or double",
                              at::toString(row_start.scalar_type()), at::toString(column.scalar_type()),
                              at::toString(value.scalar_type())));
  }
  if (row_start.numel() != rows + 1 || column.numel() != value.numel()) {
    invalid(what, fmt::format("{} rows need {} row starts, not {}; {} values need as many columns, not {}",
                              rows, rows + 1, row_start.numel(), value.numel(), column.numel()));
  }
  const int64_t* start = row_start.data_ptr<int64_t>();
  if (start[0] != 0 || start[rows] != value.numel()) {
    invalid(what, fmt::format("row_start goes from {} to {}; must go from 0 to {}", start[0], start[rows],
                              value.numel()));
  }
  for (int64_t row = 0; row < rows; ++row) {
    if (start[row + 1] < start[row]) invalid(what, fmt::format("row_start decreases after row {}", row));
  }
  const int32_t* index = column.data_ptr<int32_t>();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = start[row]; k < start[row + 1]; ++k) {
      if (index[k] < 0 || index[k] >= columns || (k > start[row] && index[k] <= index[k - 1])) {
        invalid(what, fmt::format("row {}: column {} at entry {}: must increase within 0 to {}", row,
                                  index[k], k, columns - 1));
      }
    }
  }
  if (!at::isfinite(value).all().item<bool>()) invalid(what, "a value is infinite or not a number");
}

Tensor to_dense(const SparseMatrix& matrix, int64_t largest_bytes) {
  const auto width = static_cast<int64_t>(matrix.value.element_size());
  int64_t bytes = 0;
  if (__builtin_mul_overflow(matrix.rows, matrix.columns, &bytes) ||
      __builtin_mul_overflow(bytes, width, &bytes) || bytes > largest_bytes) {
    invalid("to_dense", fmt::format("{} x {} takes more than {} bytes; keep it sparse", matrix.rows,
                                    matrix.columns, largest_bytes));
  }
  Tensor dense = at::zeros({matrix.rows, matrix.columns}, matrix.value.options());
  const int64_t* start = matrix.row_start.data_ptr<int64_t>();
  const int32_t* column = matrix.column.data_ptr<int32_t>();
  AT_DISPATCH_FLOATING_TYPES(dense.scalar_type(), "to_dense", [&] {
    const scalar_t* value = matrix.value.data_ptr<scalar_t>();
    scalar_t* to = dense.data_ptr<scalar_t>();
    for (int64_t row = 0; row < matrix.rows; ++row) {
      for (int64_t k = start[row]; k < start[row + 1]; ++k) to[row * matrix.columns + column[k]] = value[k];
    }
  });
  return dense;
}

SparseMatrix from_dense(const Tensor& matrix) {
  if (matrix.dim() != 2 || matrix.size(1) > std::numeric_limits<int32_t>::max()) {
    invalid("from_dense", fmt::format("needs two dimensions, not {}", matrix.dim()));
  }
  const Tensor present = matrix.ne(0);
  SparseMatrix result;
  result.rows = matrix.size(0);
  result.columns = matrix.size(1);
  result.row_start = at::zeros({result.rows + 1}, cpu(at::kLong));
  result.row_start.narrow(0, 1, result.rows).copy_(present.sum(1).cumsum(0));
  result.column = present.nonzero().select(1, 1).to(at::kInt).contiguous();
  result.value = matrix.masked_select(present);
  return result;
}

SparseMatrix transposed(const SparseMatrix& matrix) {
  SparseMatrix result;
  result.rows = matrix.columns;
  result.columns = matrix.rows;
  if (matrix.rows > std::numeric_limits<int32_t>::max()) invalid("transposed", "more than 2^31-1 rows");
  result.row_start = at::zeros({matrix.columns + 1}, cpu(at::kLong));
  result.row_start.narrow(0, 1, matrix.columns).copy_(document_frequency(matrix).cumsum(0));
  result.column = at::empty_like(matrix.column);
  result.value = at::empty_like(matrix.value);
  const Tensor next = result.row_start.clone();
  int64_t* to = next.data_ptr<int64_t>();
  const int64_t* start = matrix.row_start.data_ptr<int64_t>();
  const int32_t* column = matrix.column.data_ptr<int32_t>();
  int32_t* row_of = result.column.data_ptr<int32_t>();
  AT_DISPATCH_FLOATING_TYPES(matrix.value.scalar_type(), "transposed", [&] {
    const scalar_t* from = matrix.value.data_ptr<scalar_t>();
    scalar_t* value = result.value.data_ptr<scalar_t>();
    for (int64_t row = 0; row < matrix.rows; ++row) {
      for (int64_t k = start[row]; k < start[row + 1]; ++k) {
        const int64_t place = to[column[k]]++;
        row_of[place] = static_cast<int32_t>(row);
        value[place] = from[k];
      }
    }
  });
  return result;
}

SparseMatrix select_rows(const SparseMatrix& matrix, const Tensor& index) {
  check_tensor("select_rows", "index", index);
  if (index.scalar_type() != at::kLong) invalid("select_rows", "index must be int64");
  const int64_t* chosen = index.data_ptr<int64_t>();
  const int64_t* start = matrix.row_start.data_ptr<int64_t>();
  SparseMatrix result;
  result.rows = index.numel();
  result.columns = matrix.columns;
  result.row_start = at::zeros({result.rows + 1}, cpu(at::kLong));
  int64_t* to = result.row_start.data_ptr<int64_t>();
  for (int64_t i = 0; i < result.rows; ++i) {
    if (chosen[i] < 0 || chosen[i] >= matrix.rows) {
      invalid("select_rows", fmt::format("row {} of {} rows", chosen[i], matrix.rows));
    }
    to[i + 1] = to[i] + start[chosen[i] + 1] - start[chosen[i]];
  }
  result.column = at::empty({to[result.rows]}, matrix.column.options());
  result.value = at::empty({to[result.rows]}, matrix.value.options());
  const auto copy = [&](auto* target, const auto* from) {
    for (int64_t i = 0; i < result.rows; ++i) {
      std::copy(from + start[chosen[i]], from + start[chosen[i] + 1], target + to[i]);
    }
  };
  copy(result.column.data_ptr<int32_t>(), matrix.column.data_ptr<int32_t>());
  AT_DISPATCH_FLOATING_TYPES(matrix.value.scalar_type(), "select_rows", [&] {
    copy(result.value.data_ptr<scalar_t>(), matrix.value.data_ptr<scalar_t>());
  });
  return result;
}

SparseMatrix to_dtype(const SparseMatrix& matrix, at::ScalarType dtype) {
  return with_values(matrix, matrix.value.to(dtype));
}

SparseMatrix unit_rows(const SparseMatrix& matrix) {
  Tensor result = matrix.value.clone();
  const int64_t* start = matrix.row_start.data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(result.scalar_type(), "unit_rows", [&] {
    scalar_t* value = result.data_ptr<scalar_t>();
    for (int64_t row = 0; row < matrix.rows; ++row) {
      // Scaled by the largest first, so that squares neither overflow nor vanish.
      double largest = 0;
      for (int64_t k = start[row]; k < start[row + 1]; ++k) {
        largest = std::max(largest, std::abs(static_cast<double>(value[k])));
      }
      if (largest == 0) continue;
      double squares = 0;
      for (int64_t k = start[row]; k < start[row + 1]; ++k) {
        squares += (value[k] / largest) * (value[k] / largest);
      }
      const double root = std::sqrt(squares);
      for (int64_t k = start[row]; k < start[row + 1]; ++k) {
        value[k] = static_cast<scalar_t>(value[k] / largest / root);
      }
    }
  });
  return with_values(matrix, result);
}

Tensor document_frequency(const SparseMatrix& matrix) {
  Tensor count = at::zeros({matrix.columns}, cpu(at::kLong));
  int64_t* rows = count.data_ptr<int64_t>();
  const int32_t* column = matrix.column.data_ptr<int32_t>();
  for (int64_t k = 0; k < matrix.nonzeros(); ++k) ++rows[column[k]];
  return count;
}

SparseMatrix scale_columns(const SparseMatrix& matrix, const Tensor& scale) {
  check_tensor("scale_columns", "scale", scale);
  if (scale.scalar_type() != at::kDouble || scale.numel() != matrix.columns) {
    invalid("scale_columns", fmt::format("needs {} doubles, not {} of {}", matrix.columns, scale.numel(),
                                         at::toString(scale.scalar_type())));
  }
  const Tensor factors = scale.index_select(0, matrix.column.to(at::kLong));
  return with_values(matrix, (matrix.value.to(at::kDouble) * factors).to(matrix.value.scalar_type()));
}

}  // namespace bilevel
