#include "bilevel/core/projection.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <tuple>

namespace bilevel {
namespace {

// Held, Wolfe and Crowder 1974: sort each row, find how many entries stay positive, shift by what makes them
// sum to 1.
Tensor simplex_rows(const Tensor& rows) {
  // Shifting a row does not change its projection, and an entry 1 below the largest is zero in it: within
  // [-1, 0] nothing overflows and little cancels.
  const Tensor near = (rows - rows.amax(1, /*keepdim=*/true)).clamp_min(-1);
  const Tensor sorted = std::get<0>(near.sort(1, /*descending=*/true));
  const Tensor counts = at::arange(1, rows.size(1) + 1, rows.options());
  const Tensor shifts = (sorted.cumsum(1) - 1) / counts;
  const Tensor last = sorted.gt(shifts).sum(1, /*keepdim=*/true) - 1;
  return (near - shifts.gather(1, last)).clamp_min(0);
}

}  // namespace

Projection project_to_box(double low, double high) {
  if (!(low <= high)) {
    throw std::invalid_argument(
        fmt::format("projection: box [low, high] = [{}, {}] must have low <= high", low, high));
  }
  return [low, high](const Tensor& x) { return x.clamp(low, high); };
}

Projection project_to_nonnegative() {
  return [](const Tensor& x) { return x.clamp_min(0); };
}

Projection project_to_simplex(int64_t row_length) {
  if (row_length < 0) {
    throw std::invalid_argument(fmt::format(
        "projection: simplex row_length = {}: must be at least 0; 0 is the whole vector as one row",
        row_length));
  }
  return [row_length](const Tensor& x) {
    const int64_t length = row_length == 0 ? x.numel() : row_length;
    if (x.numel() == 0 || x.numel() % length != 0) {
      throw std::invalid_argument(
          fmt::format("projection: simplex row_length = {} must divide x's {} entries, at least one row",
                      row_length, x.numel()));
    }
    return simplex_rows(x.reshape({-1, length})).reshape(x.sizes());
  };
}

}  // namespace bilevel
