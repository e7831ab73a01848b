#include "bilevel/data/labels.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace bilevel {
namespace {

constexpr double largest_label = 9007199254740992.0;  // 2^53: whole numbers are exact in a double up to here

[[noreturn]] void fail(std::string_view what, int64_t example, const std::string& expected,
                       const std::string& found) {
  throw std::runtime_error(
      fmt::format("{}: example {}: expected {}, found {}; do the labels belong to another file?", what,
                  example, expected, found));
}

std::vector<int64_t> whole_numbers(const Tensor& labels, std::string_view what) {
  const Tensor numbers = labels.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* number = numbers.data_ptr<double>();
  std::vector<int64_t> result;
  result.reserve(static_cast<size_t>(numbers.numel()));
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    if (!(std::abs(number[i]) <= largest_label) || number[i] != std::floor(number[i])) {
      fail(what, i, "a whole number as label", fmt::format("{}", number[i]));
    }
    result.push_back(static_cast<int64_t>(number[i]));
  }
  return result;
}

}  // namespace

std::vector<int64_t> distinct_labels(const Tensor& labels, std::string_view what) {
  std::vector<int64_t> values = whole_numbers(labels, what);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.size() < 2) {
    throw std::runtime_error(
        fmt::format("{}: expected labels of at least two classes, found {} in {} examples; is the label "
                    "column a different one?",
                    what, values.empty() ? "none" : "one", labels.numel()));
  }
  return values;
}

Tensor number_labels(const Tensor& labels, const std::vector<int64_t>& values, std::string_view what) {
  std::vector<int64_t> result = whole_numbers(labels, what);
  for (size_t i = 0; i < result.size(); ++i) {
    const auto found = std::lower_bound(values.begin(), values.end(), result[i]);
    if (found == values.end() || *found != result[i]) {
      const size_t shown = std::min<size_t>(values.size(), 20);
      const std::vector<int64_t> some(values.begin(), values.begin() + static_cast<int64_t>(shown));
      fail(what, static_cast<int64_t>(i),
           fmt::format("a label among {}{}", fmt::join(some, " "), shown < values.size() ? " ..." : ""),
           fmt::format("{}", result[i]));
    }
    result[i] = found - values.begin();
  }
  return at::tensor(result, at::TensorOptions().dtype(at::kLong));
}

void check_labels(const Tensor& labels, int64_t classes, bool all_present, std::string_view what) {
  if (!labels.defined() || labels.scalar_type() != at::kLong || labels.dim() != 1) {
    throw std::invalid_argument(fmt::format("{}: labels must be one dimension of int64", what));
  }
  const Tensor here = labels.to(at::kCPU).contiguous();
  const int64_t* label = here.data_ptr<int64_t>();
  std::vector<bool> seen(static_cast<size_t>(classes), false);
  for (int64_t i = 0; i < here.numel(); ++i) {
    if (label[i] < 0 || label[i] >= classes) {
      fail(what, i, fmt::format("a label from 0 to {}", classes - 1), fmt::format("{}", label[i]));
    }
    seen[static_cast<size_t>(label[i])] = true;
  }
  if (!all_present) return;
  const auto empty = std::find(seen.begin(), seen.end(), false);
  if (empty != seen.end()) {
    throw std::runtime_error(
        fmt::format("{}: expected an example of each of {} classes, found none of class {}; add some, or "
                    "renumber the classes",
                    what, classes, empty - seen.begin()));
  }
}

}  // namespace bilevel
