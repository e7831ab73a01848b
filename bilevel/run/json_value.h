#pragma once
// JSON that may say anything. What is nested deep overflows the stack when it is copied or written, and
// nlohmann's ordered objects look at all their keys for each new one. And its get<int64_t>() makes some whole
// number of 1.5, 1e300 and true without a word, of which the language calls the second undefined. Needs
// nlohmann-json where it is included.

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bilevel {

inline constexpr int most_json_levels = 64;
inline constexpr int64_t most_json_keys = 1000;  // of one object

// Throws std::runtime_error for what goes beyond, Json::exception for what is no JSON.
template <typename Json, typename Text>
Json parse_bounded(Text&& text) {
  std::vector<int64_t> keys(most_json_levels + 2, 0);
  const auto bounded = [&](int level, typename Json::parse_event_t event, Json&) {
    if (level > most_json_levels) {
      throw std::runtime_error("expected at most " + std::to_string(most_json_levels) +
                               " levels, found more");
    }
    const auto at = static_cast<size_t>(level);
    if (event == Json::parse_event_t::object_start) keys[at + 1] = 0;
    if (event == Json::parse_event_t::key && ++keys[at] > most_json_keys) {
      throw std::runtime_error("expected at most " + std::to_string(most_json_keys) +
                               " keys in an object, found more");
    }
    return true;
  };
  return Json::parse(std::forward<Text>(text), bounded);
}

// Whether `value` is a T, or a list or an object of them; of what holds no whole numbers get<T>() decides.
template <typename T, typename Json>
bool json_fits(const Json& value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (value.is_number_unsigned()) return std::in_range<T>(value.template get<uint64_t>());
    return value.is_number_integer() && std::in_range<T>(value.template get<int64_t>());
  } else if constexpr (requires { typename T::mapped_type; }) {
    return value.is_object() && std::all_of(value.begin(), value.end(), [](const Json& element) {
             return json_fits<typename T::mapped_type>(element);
           });
  } else if constexpr (requires { typename T::value_type; } && !std::is_same_v<T, std::string>) {
    return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& element) {
             return json_fits<typename T::value_type>(element);
           });
  } else {
    return true;
  }
}

// Throws std::runtime_error where a number is not whole or too large, Json::exception for the rest.
template <typename T, typename Json>
T json_as(const Json& value) {
  if (!json_fits<T>(value)) {
    throw std::runtime_error(std::string("expected whole numbers that fit, found ") +
                             (value.is_number() ? value.dump() : value.type_name()));
  }
  return value.template get<T>();
}

}  // namespace bilevel
