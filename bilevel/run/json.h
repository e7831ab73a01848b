#pragma once
// JSON as all files and results have it: objects keep the order in which they were written. Needs
// nlohmann-json where it is included.

#include <cmath>
#include <nlohmann/json.hpp>

namespace bilevel {

using Json = nlohmann::ordered_json;

// JSON has no infinity and no NaN: null says that there is no number.
inline Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace bilevel
