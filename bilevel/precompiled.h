#pragma once
// The precompiled header: LibTorch's headers cost most of a compile. It includes nothing of ours, and no file
// may rely on it: every file includes what it uses.
#include <ATen/core/ivalue.h>  // first: clang rejects LibTorch 1.13's headers at C++20 otherwise

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>
