#pragma once
// Tables that belong together, as a training and a validation set, may have their columns in another order.
// They are matched by name: by place, one feature would silently be read as another.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bilevel {

// Where each of `names`, which stand in line `line` of the table at `path`, stands in `wanted`, the names of
// the table `like`. Throws std::runtime_error naming a column that only one of the two has, or one that
// occurs twice where the orders differ.
std::vector<size_t> match_columns(const std::string& path, int64_t line,
                                  const std::vector<std::string>& names, const std::string& like,
                                  const std::vector<std::string>& wanted);

}  // namespace bilevel
