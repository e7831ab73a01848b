#include "bilevel/tables/scaled_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <limits>
#include <stdexcept>

namespace bilevel {
namespace {

Tensor dense_rows(const Features& rows) {
  if (!rows.is_sparse()) return rows.dense.to(at::kDouble);
  const SparseMatrix& m = rows.sparse;
  Tensor dense = at::zeros({m.rows, m.columns}, at::kDouble);
  const Tensor counts = m.row_start.slice(0, 1) - m.row_start.slice(0, 0, m.rows);
  const Tensor row = at::repeat_interleave(counts.to(at::kLong));
  dense.index_put_({row, m.column.to(at::kLong)}, m.value.to(at::kDouble));
  return dense;
}

}  // namespace

TableScale::TableScale(const std::vector<Features>& parts, bool standardize) {
  int64_t count = 0;
  const int64_t columns = parts.empty() ? 0 : parts.front().columns();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Tensor low = at::full({columns}, infinity, at::kDouble), high = -low,
         sum = at::zeros({columns}, at::kDouble);
  for (const Features& part : parts) {
    if (part.columns() != columns) {
      throw std::invalid_argument(fmt::format("tables of {} and of {} columns", columns, part.columns()));
    }
    count += part.rows();
    if (standardize && part.rows() > 0) {
      const Tensor rows = dense_rows(part);
      low = at::minimum(low, std::get<0>(rows.min(0)));
      high = at::maximum(high, std::get<0>(rows.max(0)));
    }
  }
  if (count == 0) throw std::invalid_argument("a table without rows has no scale");
  mean_ = at::zeros({columns}, at::kDouble);
  deviation_ = at::ones({columns}, at::kDouble);
  if (!standardize) return;
  // In parts of the largest number, so that no sum of squares leaves the range of doubles. A power of two
  // divides without rounding.
  const Tensor largest = at::maximum(low.abs(), high.abs()).clamp_min(std::numeric_limits<double>::min());
  const Tensor unit = largest / (2 * std::get<0>(at::frexp(largest)));
  for (const Features& part : parts) sum += (dense_rows(part) / unit).sum(0);
  const Tensor mean = sum / static_cast<double>(count);
  Tensor squares = at::zeros({columns}, at::kDouble);
  for (const Features& part : parts) squares += (dense_rows(part) / unit - mean).square().sum(0);
  mean_ = mean * unit;
  deviation_ = (squares / static_cast<double>(count)).sqrt() * unit;
  // Constant, or constant but for the last digit of a double.
  const Tensor constant = low.eq(high).logical_or(deviation_.le(mean_.abs() * 1e-15));
  deviation_.masked_fill_(constant, infinity);
}

Tensor TableScale::scaled(const Features& rows) const {
  if (rows.columns() != mean_.numel()) {
    throw std::invalid_argument(
        fmt::format("a table of {} columns for a scale of {}", rows.columns(), mean_.numel()));
  }
  const Tensor scaled = (dense_rows(rows) - mean_) / deviation_;
  return at::cat({scaled, at::ones({rows.rows(), 1}, at::kDouble)}, 1);
}

Tensor TableScale::in_users_units(const Tensor& weights) const {
  const int64_t columns = mean_.numel();
  const Tensor slopes = weights.narrow(0, 0, columns) / deviation_.unsqueeze(1);
  const Tensor intercept = weights.narrow(0, columns, 1) - mean_.unsqueeze(0).mm(slopes);
  return at::cat({slopes, intercept});
}

}  // namespace bilevel
