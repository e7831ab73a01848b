#include "bilevel/report/page.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "bilevel/report/curves.h"
#include "bilevel/report/html.h"
#include "bilevel/report/style.h"

namespace bilevel::page {

using html::escaped;

std::string whole(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      // Whatever a file smuggled in: nothing is loaded from elsewhere and no script runs.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
      "'unsafe-inline'\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      escaped(title), report_style, body);
}

std::string section(const std::string& id, const std::string& title, const std::string& content) {
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\n{2}</section>\n",
      id, escaped(title), content);
}

std::string status_badge(RunStatus status) {
  return fmt::format("<span class=\"status {0}\">{0}</span>", name_of(status));
}

std::string footer(const RunFacts& facts) {
  return fmt::format(
      "<footer>Written by <code>bilevel report</code>, version {}. This page loads nothing "
      "from anywhere.</footer>\n",
      escaped(facts.machine.version));
}

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string option_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& one : value) text += (text.empty() ? "" : " ") + option_text(one);
  return text;
}

std::string folder_name(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (path.filename().empty() || path.filename() == ".")
    path = std::filesystem::absolute(path).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

const Json* last_counts(const RunData& run) {
  if (const Json* counts = member(run.summary, "counts")) return counts;
  for (auto line = run.metrics.lines.rbegin(); line != run.metrics.lines.rend(); ++line) {
    if (const Json* counts = member(*line, "counts")) return counts;
  }
  return nullptr;
}

std::string count_name(const std::string& name) {
  static const std::map<std::string, std::string> known{{"inner_gradient", "gradients of the inner loss"},
                                                        {"outer_gradient", "gradients of the outer loss"},
                                                        {"hessian", "Hessian products"},
                                                        {"cross", "cross products"},
                                                        {"samples", "examples read"}};
  const auto found = known.find(name);
  return found == known.end() ? title_of(name) : found->second;
}

}  // namespace bilevel::page
