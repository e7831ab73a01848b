#pragma once
// A square matrix as a picture, by gnuplot as a process of its own.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace bilevel {

// An SVG of the entries, rows downwards, with the names along both sides. Empty where gnuplot is not here.
// Throws std::runtime_error where it fails.
std::string heat_map(const at::Tensor& matrix, const std::vector<std::string>& names,
                     const std::string& title);

}  // namespace bilevel
