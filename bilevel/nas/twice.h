#pragma once
// What the operations with hand-written second derivatives share.

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

namespace bilevel::nas {

// Called in a second derivative: a graph of it would be wrong in silence.
inline void forbid_third_derivatives(std::string_view operation) {
  if (!at::GradMode::is_enabled()) return;
  throw std::logic_error(
      fmt::format("{}: third derivatives are not written; use the plain form of the network (merged = false)",
                  operation));
}

}  // namespace bilevel::nas
