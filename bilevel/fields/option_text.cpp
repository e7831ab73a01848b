#include "bilevel/fields/option_text.h"

#include <algorithm>
#include <functional>

namespace bilevel {
namespace {

// Of ASCII's separators, which no sentence has.
constexpr char edge = '\x1f', between = '\x1e';

// Values come from users, who may send anything.
std::string without_marks(std::string text) {
  std::erase_if(text, [](char c) { return c == edge || c == between; });
  return text;
}

using Render = std::function<std::string(const std::string& field, const std::string* value)>;

std::string rendered(const std::string& marked, const Render& render) {
  std::string text;
  for (size_t i = 0; i < marked.size();) {
    const size_t end = marked[i] == edge ? marked.find(edge, i + 1) : std::string::npos;
    if (end == std::string::npos) {
      if (marked[i] != edge && marked[i] != between) text += marked[i];
      ++i;
      continue;
    }
    const std::string inside = marked.substr(i + 1, end - i - 1);
    const size_t middle = inside.find(between);
    const std::string value = middle == std::string::npos ? "" : inside.substr(middle + 1);
    text += render(inside.substr(0, middle), middle == std::string::npos ? nullptr : &value);
    i = end + 1;
  }
  return text;
}

}  // namespace

std::string named(const std::string& field) { return edge + field + edge; }

std::string named(const std::string& field, const std::string& value) {
  return edge + field + between + without_marks(value) + edge;
}

std::string plain_text(const std::string& marked) {
  return rendered(marked, [](const std::string& field, const std::string* value) {
    return value == nullptr ? field : field + " = " + *value;
  });
}

std::string flag_text(const std::string& marked) {
  return rendered(marked, [](const std::string& field, const std::string* value) {
    return value == nullptr || value->empty() ? flag_of(field) : flag_of(field) + " " + *value;
  });
}

std::string flag_of(const std::string& field) {
  std::string flag = "--" + field;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string no_effect(const std::string& option, const std::string& with,
                      const std::vector<std::string>& users) {
  std::string text = option + " has no effect " + (with.empty() ? "here" : "with " + with);
  for (size_t i = 0; i < users.size(); ++i) {
    text += (i == 0 ? "; only " : i + 1 < users.size() ? ", " : " and ") + users[i];
  }
  if (!users.empty()) text += users.size() == 1 ? " uses it" : " use it";
  return text + ". Leave it out";
}

std::string marked_message(const std::exception& error) {
  const auto* marked = dynamic_cast<const WithMarkedMessage*>(&error);
  return marked != nullptr ? marked->marked() : error.what();
}

}  // namespace bilevel
