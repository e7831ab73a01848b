#include "cli/option_names.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

namespace bilevel::cli {
namespace {

bool is_field(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == ' ' || c == ':';
  });
}

// The field before " = " and its value, at the message's beginning.
std::string with_first_name(const CLI::App& command, const std::string& message) {
  const size_t equals = message.find(" = ");
  if (equals == std::string::npos) return message;
  const std::string field = message.substr(0, equals);  // "solve: records", perhaps
  const size_t owner = field.rfind(": ");
  const std::string name = owner == std::string::npos ? field : field.substr(owner + 2);
  if (!is_field(field)) return message;
  std::string option = name.starts_with("--") ? name : "--" + name;
  std::replace(option.begin(), option.end(), '_', '-');
  if (command.get_option_no_throw(option) == nullptr) return message;
  return option + " " + message.substr(equals + 3);
}

// Any other word with an underscore that is an option of the command; not a part of a path.
std::string with_names_inside(const CLI::App& command, const std::string& message) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  std::string result;
  for (size_t i = 0; i < message.size();) {
    size_t end = i;
    while (end < message.size() && is_letter(message[end])) ++end;
    const std::string word = message.substr(i, end - i);
    const bool stands_alone =
        (i == 0 || message[i - 1] == ' ') &&
        (end == message.size() || std::string_view(" :,;").find(message[end]) != std::string_view::npos);
    std::string option = "--" + word;
    std::replace(option.begin(), option.end(), '_', '-');
    const bool known =
        stands_alone && word.find('_') != std::string::npos && command.get_option_no_throw(option) != nullptr;
    result += known ? option : word;
    if (end < message.size()) result += message[end];
    i = end + 1;
  }
  return result;
}

}  // namespace

std::string with_option_names(const CLI::App& command, const std::string& message) {
  return with_names_inside(command, with_first_name(command, message));
}

}  // namespace bilevel::cli
