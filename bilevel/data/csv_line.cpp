#include "bilevel/data/csv_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "bilevel/data/csv_diagnosis.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/npy_header.h"

namespace bilevel {

bool CsvLine::split(std::string_view line, Fault& fault) {
  line_ = line;
  fields_.clear();
  unquoted_.clear();
  unquoted_.reserve(static_cast<size_t>(std::count(line.begin(), line.end(), '"')));
  for (;;) {
    size_t end = 0;
    const std::string_view rest = line.substr(std::min(line.find_first_not_of(blanks()), line.size()));
    if (rest.starts_with('"')) {
      line = rest;
      if (!add_quoted(line, end, fault)) return false;
    } else {
      end = std::min(line.find(separator_), line.size());
      fields_.push_back(trimmed(line.substr(0, end)));
    }
    if (end >= line.size()) return true;
    line.remove_prefix(end + 1);
  }
}

bool CsvLine::add_quoted(std::string_view line, size_t& end, Fault& fault) {
  std::string& field = unquoted_.emplace_back();
  size_t at = 1;
  for (;; ++at) {
    if (at >= line.size()) {
      fault = {"a closing quote on the same line", printable(line), "quoted line breaks are not supported"};
      return false;
    }
    if (line[at] == '"') {
      if (at + 1 >= line.size() || line[at + 1] != '"') break;
      ++at;
    }
    field += line[at];
  }
  fields_.emplace_back(field);
  at = std::min(line.find_first_not_of(blanks(), at + 1), line.size());
  if (at < line.size() && line[at] == '\r' && at + 1 == line.size()) at = line.size();
  if (at < line.size() && line[at] != separator_) {
    const std::string hint = way_out_of_separator(line_, separator_);
    fault = {fmt::format("{} after a quoted field", printable({&separator_, 1})), printable(line.substr(at)),
             hint.empty() ? "is the separator a different one?" : hint};
    return false;
  }
  end = at;
  return true;
}

std::string csv_quoted(const std::string& text) {
  const bool is_plain = text.find_first_of(",;\"\t\r\n") == std::string::npos && !text.empty() &&
                        text.front() != ' ' && text.back() != ' ';
  if (is_plain) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

}  // namespace bilevel
