#include "bilevel/data/csv_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <memory>
#include <optional>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"

namespace bilevel {
namespace {

constexpr size_t dialect_probe = 1 << 16;
constexpr size_t most_dialect_lines = 100;
constexpr std::array<char, 3> separators{';', '\t', ','};

size_t count_outside_quotes(std::string_view line, char separator) {
  size_t count = 0;
  bool is_quoted = false;
  for (const char letter : line) {
    if (letter == '"') is_quoted = !is_quoted;
    if (!is_quoted && letter == separator) ++count;
  }
  return count;
}

// What other files begin with, and the way from there to a table.
struct OtherKind {
  std::string_view begin, name, hint;
};
constexpr std::array<OtherKind, 8> other_kinds{
    {{"PK\x03\x04", "a workbook or another ZIP archive", "save the sheet as CSV"},
     {"\xd0\xcf\x11\xe0", "an old workbook", "save the sheet as CSV"},
     {"PAR1", "Parquet", "write it as CSV, for example with pandas: read_parquet(...).to_csv(...)"},
     {"\x93NUMPY", "a NumPy array", "give the file a name that ends in .npy"},
     {"\x89PNG", "a PNG picture", "folders of pictures are for search, train and learn"},
     {"\xff\xd8\xff", "a JPEG picture", "folders of pictures are for search, train and learn"},
     {"SQLite format 3", "an SQLite database", "write the table as CSV"},
     {"%PDF", "a PDF document", "save the table as CSV"}}};

// Tables contain none of these; about a tenth of compressed or random bytes are control characters.
bool is_control(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  const bool is_space = std::string_view("\t\n\v\f\r").find(letter) != std::string_view::npos;
  return (code < 0x20 && !is_space) || code == 0x7f;
}

void require_text(const std::string& path, std::string_view text) {
  constexpr std::string_view table = "a table in UTF-8 or Latin-1";
  constexpr size_t one_in = 50;
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    byte_error(path, 0, table, "UTF-16", "save it as UTF-8, or as CSV");
  }
  const auto controls = static_cast<size_t>(std::count_if(text.begin(), text.end(), is_control));
  if (controls * one_in <= text.size() && text.find('\0') == std::string_view::npos) return;
  for (const OtherKind& kind : other_kinds) {
    if (text.starts_with(kind.begin)) byte_error(path, 0, table, kind.name, kind.hint);
  }
  const auto first = std::find_if(text.begin(), text.end(), is_control);
  byte_error(path, first - text.begin(), table,
             fmt::format("{} control characters in the first {} bytes, the first of them 0x{:02x}", controls,
                         text.size(), static_cast<unsigned char>(*first)),
             "it is another kind of file, or damaged: save the table as CSV, in UTF-8");
}

}  // namespace

char recognised_separator(std::string_view lines, bool prefers_tabs) {
  std::array<std::optional<size_t>, separators.size()> counts;  // 0: not the same in all lines
  size_t seen = 0;
  while (!lines.empty() && seen < most_dialect_lines) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (trimmed(line).empty()) continue;
    ++seen;
    for (size_t i = 0; i < separators.size(); ++i) {
      const size_t count = count_outside_quotes(line, separators[i]);
      if (!counts[i]) counts[i] = count;
      if (*counts[i] != count) counts[i] = 0;
    }
  }
  const auto regular = [&](size_t i) { return counts[i].value_or(0) > 0; };
  if (prefers_tabs && regular(1)) return '\t';
  for (size_t i = 0; i < separators.size(); ++i) {
    if (regular(i)) return separators[i];
  }
  return prefers_tabs ? '\t' : ',';
}

std::string beginning_of_table(const std::string& path) {
  const std::unique_ptr<ByteSource> source = open_bytes(path, int64_t{1} << 40);
  std::string text(dialect_probe, '\0');
  text.resize(source->read(text.data(), text.size()));
  require_text(path, text);
  return text;
}

char separator_of_beginning(std::string_view text, bool prefers_tabs) {
  if (text.size() == dialect_probe) {
    const size_t last = text.rfind('\n');
    if (last != std::string::npos) text = text.substr(0, last);
  }
  return recognised_separator(text, prefers_tabs);
}

std::string separator_name(char separator) {
  switch (separator) {
    case ';':
      return "semicolons";
    case '\t':
      return "tabs";
    case ' ':
      return "blanks";
    default:
      return "commas";
  }
}

bool is_comma_number(std::string_view field) {
  std::string text(field);
  const size_t comma = text.find(',');
  if (comma == std::string::npos || text.find('.') != std::string::npos) return looks_like_thousands(field);
  text[comma] = '.';
  double ignored = 0;
  return parse_number(std::string_view(text), ignored) || looks_like_thousands(field);
}

bool looks_like_thousands(std::string_view field) {
  if (field.starts_with('-') || field.starts_with('+')) field.remove_prefix(1);
  const auto are_digits = [](std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  };
  size_t comma = field.find(',');
  if (comma == std::string_view::npos || comma == 0 || comma > 3 || !are_digits(field.substr(0, comma))) {
    return false;
  }
  field.remove_prefix(comma);
  while (field.size() >= 4 && field[0] == ',' && are_digits(field.substr(1, 3))) field.remove_prefix(4);
  return field.empty();
}

}  // namespace bilevel
