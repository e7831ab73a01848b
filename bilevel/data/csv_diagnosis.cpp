#include "bilevel/data/csv_diagnosis.h"

#include <algorithm>
#include <array>
#include <cmath>

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

bool is_number_with_comma(std::string_view field) {
  std::string text(field);
  const size_t comma = text.find(',');
  if (comma == std::string::npos) return false;
  text[comma] = '.';
  double ignored = 0;
  return parse_number(std::string_view(text), ignored);
}

}  // namespace

bool is_missing(std::string_view field) {
  std::string text(trimmed(field));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  constexpr std::array<std::string_view, 12> words{"",    "na", "n/a", "nan", "null", "none",
                                                   "nil", "?",  "-",   ".",   "#n/a", "missing"};
  if (std::find(words.begin(), words.end(), text) != words.end()) return true;
  double value = 0;
  return parse_number(std::string_view(text), value) && std::isnan(value);
}

std::string way_out_of_field(std::string_view field, CsvColumn column) {
  if (is_missing(field)) return "missing values must be filled in or their rows left out";
  double value = 0;
  if (parse_number(field, value))
    return "replace what is not finite, or leave its row out";  // or above 1e308
  if (field.find_first_not_of("+-.0123456789eE") == std::string_view::npos) {
    return "is it beyond what a double can hold? Rescale the column";
  }
  if (is_number_with_comma(field)) return "write a decimal point in place of the comma";
  switch (column) {
    case CsvColumn::label:
      return "number the classes (0, 1, 2, ...) in place of their names, or choose another column by "
             "--label-column";
    case CsvColumn::group:
      return "number the groups (0, 1, 2, ...) in place of their names, or choose another column";
    case CsvColumn::feature:
      break;
  }
  return "text is no feature: leave the column out if it is an id or a name, write numbers in place of "
         "categories, or choose it by --label-column if it holds the classes";
}

std::string way_out_of_separator(std::string_view line, char separator) {
  const std::string text = outside_quotes(line);
  const auto has = [&](char c) { return text.find(c) != std::string::npos; };
  if (separator != ';' && has(';')) {
    return separator == ',' && has(',')
               ? "its fields are separated by semicolons, its decimals by commas: rewrite both, for example "
                 "with sed 's/,/./g; s/;/,/g'"
               : "its fields are separated by semicolons: rewrite them as commas in a .csv file, for example "
                 "with sed 's/;/,/g', or with sed 's/,/./g; s/;/,/g' where its decimals are written with "
                 "commas";
  }
  if (separator == ',' && has('\t')) {
    return "its fields are separated by tabs: give the file the ending .tsv";
  }
  if (has(separator)) return "";
  if (separator == '\t' && has(',')) {
    return "its fields are separated by commas: give the file the ending .csv";
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
