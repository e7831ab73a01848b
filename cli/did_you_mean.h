#pragma once
// A way out for a name that was mistyped.

#include <string>
#include <vector>

namespace bilevel::cli {

// The nearest of the names, where one is near enough to be meant; empty otherwise.
std::string nearest(const std::string& typed, const std::vector<std::string>& names);

}  // namespace bilevel::cli
