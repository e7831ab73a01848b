#pragma once
// The precompiled header of the Python module: PyTorch's and pybind11's headers cost most of a compile. It
// includes nothing of ours, and no file may rely on it.
#include <ATen/core/ivalue.h>  // first: clang rejects LibTorch 1.13's headers at C++20 otherwise

#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
