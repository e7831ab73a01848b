#include "bilevel/tables/penalty_groups.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

namespace bilevel {

PenaltyGroups::PenaltyGroups(int64_t columns, const Tensor& of_column, int64_t classes)
    : group_(of_column.defined() ? of_column : at::arange(columns, at::kLong)), count_(columns) {
  if (of_column.defined()) {
    if (of_column.dim() != 1 || of_column.numel() != columns) {
      throw std::invalid_argument(
          fmt::format("{} groups of columns for {} columns", of_column.numel(), columns));
    }
    count_ = columns == 0 ? 0 : of_column.max().item<int64_t>() + 1;
    if (columns > 0 && at::bincount(of_column, {}, count_).min().item<int64_t>() == 0) {
      throw std::invalid_argument("the groups of columns must be numbered 0, 1, ... without a gap");
    }
  }
  if (classes > 0) {
    group_ = group_.unsqueeze(1) * classes + at::arange(classes, at::kLong);
    count_ *= classes;
  }
}

Tensor PenaltyGroups::spread(const Tensor& numbers) const {
  return numbers.index_select(0, group_.flatten()).view(group_.sizes());
}

Tensor PenaltyGroups::gathered(const Tensor& by_logarithms) const {
  return at::zeros({count_}, by_logarithms.options())
      .index_add_(0, group_.flatten(), by_logarithms.flatten());
}

}  // namespace bilevel
