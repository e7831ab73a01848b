#pragma once
// Values out of JSON that may say anything. nlohmann's get<int64_t>() makes some whole number of 1.5, 1e300
// and true without a word, and the language says of the second only that it is undefined. Needs nlohmann-json
// where it is included.

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace bilevel {

// Whether `value` is a T, or a list or an object of them; of what holds no whole numbers get<T>() decides.
template <typename T>
bool json_fits(const nlohmann::json& value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (value.is_number_unsigned()) return std::in_range<T>(value.get<uint64_t>());
    return value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
  } else if constexpr (requires { typename T::mapped_type; }) {
    return value.is_object() && std::all_of(value.begin(), value.end(), json_fits<typename T::mapped_type>);
  } else if constexpr (requires { typename T::value_type; } && !std::is_same_v<T, std::string>) {
    return value.is_array() && std::all_of(value.begin(), value.end(), json_fits<typename T::value_type>);
  } else {
    return true;
  }
}

// Throws std::runtime_error where a number is not whole or too large, nlohmann::json::exception for the rest.
template <typename T>
T json_as(const nlohmann::json& value) {
  if (!json_fits<T>(value)) {
    throw std::runtime_error(std::string("expected whole numbers that fit, found ") +
                             (value.is_structured() ? value.type_name() : value.dump()));
  }
  return value.get<T>();
}

}  // namespace bilevel
