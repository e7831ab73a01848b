#pragma once
// Class labels as files give them (1 to 7, -1 and +1, digits) against the 0 to K-1 that losses expect.

#include <cstdint>
#include <string_view>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

// The distinct labels in increasing order: class k stands for values[k]. `what`, for example a file's name,
// begins the std::runtime_error of a label that is no whole number, and of fewer than two classes.
std::vector<int64_t> distinct_labels(const Tensor& labels, std::string_view what);

// int64 positions in `values`. Throws std::runtime_error naming the example for a label that is not among
// them.
Tensor number_labels(const Tensor& labels, const std::vector<int64_t>& values, std::string_view what);

// Throws std::runtime_error naming the example unless all labels (int64) are 0 to classes - 1, or naming the
// class if `all_present` and one has no example.
void check_labels(const Tensor& labels, int64_t classes, bool all_present, std::string_view what);

}  // namespace bilevel
