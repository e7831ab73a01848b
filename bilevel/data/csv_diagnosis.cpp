#include "bilevel/data/csv_diagnosis.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "bilevel/data/csv_dialect.h"
#include "bilevel/data/line_reader.h"

namespace bilevel {
namespace {

// What lies between quotes is text, whatever its characters.
std::string outside_quotes(std::string_view line) {
  std::string text;
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      text += letter;
    }
  }
  return text;
}

}  // namespace

std::string in_small_letters(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

bool is_truth(std::string_view field) {
  const std::string text = in_small_letters(field);
  return text == "true" || text == "false";
}

bool is_missing(std::string_view field) {
  const std::string text = in_small_letters(trimmed(field));
  constexpr std::array<std::string_view, 12> words{"",    "na", "n/a", "nan", "null", "none",
                                                   "nil", "?",  "-",   ".",   "#n/a", "missing"};
  if (std::find(words.begin(), words.end(), text) != words.end()) return true;
  double value = 0;
  return parse_number(std::string_view(text), value) && std::isnan(value);
}

bool is_missing_text(std::string_view field) {
  const std::string text = in_small_letters(trimmed(field));
  constexpr std::array<std::string_view, 7> words{"", "na", "n/a", "nan", "null", "?", "#n/a"};
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool looks_like_date(std::string_view field) {
  std::array<size_t, 3> lengths{};
  size_t groups = 0;
  char between = '\0';
  while (!field.empty() && groups < lengths.size()) {
    const size_t digits = std::min(field.find_first_not_of("0123456789"), field.size());
    if (digits == 0 || digits > 4) return false;
    lengths[groups++] = digits;
    field.remove_prefix(digits);
    if (groups == lengths.size() || field.empty()) break;
    if (between == '\0') between = field[0];
    if (field[0] != between || std::string_view("-./").find(between) == std::string_view::npos) return false;
    field.remove_prefix(1);
  }
  const bool is_year_first = lengths[0] == 4 && lengths[1] <= 2 && lengths[2] <= 2;
  const bool is_year_last = lengths[0] <= 2 && lengths[1] <= 2 && (lengths[2] == 2 || lengths[2] == 4);
  return groups == lengths.size() && (is_year_first || is_year_last) &&
         (field.empty() || field[0] == ' ' || field[0] == 'T');
}

bool is_id_name(std::string_view name) {
  const std::string text = in_small_letters(name);
  constexpr std::array<std::string_view, 11> names{"",     "id",   "index", "row",    "rowid",     "row_id",
                                                   "uuid", "guid", "uid",   "row_no", "unnamed: 0"};
  if (std::find(names.begin(), names.end(), text) != names.end()) return true;
  return text.ends_with("_id") || text.ends_with(" id") || text.ends_with("-id") || name.ends_with("Id") ||
         name.ends_with("ID");
}

std::string way_out_of_field(std::string_view field, CsvColumn column) {
  if (is_missing(field))
    return "fill in missing values with --missing mean, or leave out their rows with --missing drop";
  double value = 0;
  const bool is_number = parse_number(field, value);
  if (is_number && !std::isfinite(value)) return "replace what is not finite, or leave its row out";
  if (is_number && column == CsvColumn::feature) {
    return "decimals in this file are written with a comma, and this one with a point: write all of them the "
           "same way";
  }
  if (column == CsvColumn::feature && looks_like_date(field)) {
    return "it looks like a date, which cannot be used as a feature directly: leave the column out with "
           "--drop, or convert it to a number, such as days since a fixed date";
  }
  if (!is_number && field.find_first_not_of("+-.0123456789eE") == std::string_view::npos) {
    return "is it beyond what a double can hold? Rescale the column";
  }
  if (is_comma_number(field)) {
    return "give --decimal comma if all decimals are written this way; otherwise write a point in place of "
           "the comma";
  }
  switch (column) {
    case CsvColumn::label:
      return "choose another column with --label-column; targets of a regression are not classes";
    case CsvColumn::group:
      return "choose another column of groups";
    case CsvColumn::feature:
      break;
  }
  return "text cannot be used as a feature: leave the column out with --drop if it is an id or a name, or "
         "choose it with --label-column if it holds the classes";
}

std::string way_out_of_separator(std::string_view line, char separator) {
  const std::string text = outside_quotes(line);
  const auto has = [&](char c) { return text.find(c) != std::string::npos; };
  if (separator != ';' && has(';')) {
    return "are its fields separated by semicolons? Give --separator semicolon";
  }
  if (separator == ',' && has('\t')) {
    return "are its fields separated by tabs? Give --separator tab";
  }
  if (has(separator)) return "";
  if (separator == '\t' && has(',')) {
    return "are its fields separated by commas? Give --separator comma";
  }
  if (trimmed(text).find(' ') != std::string_view::npos && separator != ' ') {
    // Blanks separate only where they stand between numbers: a name may hold some.
    std::string_view rest = trimmed(text);
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      double ignored = 0;
      if (!parse_number(word, ignored)) return "";
      rest = trimmed(rest.substr(word.size()));
    }
    return "its fields are separated by blanks: rewrite them as commas in a .csv file, for example with sed "
           "'s/  */,/g'";
  }
  return "";
}

}  // namespace bilevel
