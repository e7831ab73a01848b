#pragma once
// How a field's value is written as words and read from them: on a command line, in a configuration file, in
// config.json. A user-defined type has its codec beside it.

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace bilevel {

enum class FieldType { flag, whole, seed, number, text };

// One word. Throws std::invalid_argument if it is not such a value.
std::string word_of(bool value);
std::string word_of(int64_t value);
std::string word_of(uint64_t value);
std::string word_of(double value);  // the shortest that is read back to the same bits
inline std::string word_of(int value) { return word_of(static_cast<int64_t>(value)); }
inline std::string word_of(const std::string& value) { return value; }
void read_word(const std::string& word, bool& value);
void read_word(const std::string& word, int& value);
void read_word(const std::string& word, int64_t& value);
void read_word(const std::string& word, uint64_t& value);
void read_word(const std::string& word, double& value);
inline void read_word(const std::string& word, std::string& value) { value = word; }

template <typename T>
constexpr FieldType type_of_word() {
  if constexpr (std::is_same_v<T, bool>) return FieldType::flag;
  if constexpr (std::is_same_v<T, uint64_t>) return FieldType::seed;
  if constexpr (std::is_integral_v<T>) return FieldType::whole;
  if constexpr (std::is_floating_point_v<T>) return FieldType::number;
  return FieldType::text;
}

// Specialise word_of and read_word for a type that is one word; this one for what is none or several.
template <typename T>
struct FieldCodec {
  static constexpr FieldType type = type_of_word<T>();
  static constexpr bool is_list = false;
  static std::vector<std::string> words(const T& value) { return {word_of(value)}; }
  static void read(const std::vector<std::string>& words, T& value) { read_word(words.back(), value); }
};
template <typename T>
struct FieldCodec<std::optional<T>> {
  static constexpr FieldType type = type_of_word<T>();
  static constexpr bool is_list = false;
  static std::vector<std::string> words(const std::optional<T>& value) {
    return value ? std::vector<std::string>{word_of(*value)} : std::vector<std::string>{};
  }
  static void read(const std::vector<std::string>& words, std::optional<T>& value) {
    read_word(words.back(), value.emplace());
  }
};
template <typename T>
struct FieldCodec<std::vector<T>> {
  static constexpr FieldType type = type_of_word<T>();
  static constexpr bool is_list = true;
  static std::vector<std::string> words(const std::vector<T>& value) {
    std::vector<std::string> all;
    for (const T& one : value) all.push_back(word_of(one));
    return all;
  }
  static void read(const std::vector<std::string>& words, std::vector<T>& value) {
    value.assign(words.size(), T{});
    for (size_t i = 0; i < words.size(); ++i) read_word(words[i], value[i]);
  }
};

}  // namespace bilevel
