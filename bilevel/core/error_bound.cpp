#include "bilevel/core/error_bound.h"

#include <array>
#include <cstddef>

namespace bilevel {

std::string_view name_of(BoundKind kind) {
  constexpr std::array<std::string_view, 3> names{"none", "rigorous", "estimated"};
  return names.at(static_cast<size_t>(kind));
}

}  // namespace bilevel
