#pragma once
// How a table is written: what separates its fields, and what its decimals are written with. Spreadsheets
// write semicolons and decimal commas in half of the world, programs write tabs; a file seldom says which.

#include <string>
#include <string_view>

namespace bilevel {

struct CsvDialect {
  char separator = ',';
  char decimal = '.';
};

// Which of comma, semicolon and tab separates the fields of these lines, the beginning of a file: the one
// that stands equally often, outside quotes, in all of them. A last line that is not whole should be left
// out.
char recognised_separator(std::string_view lines, bool prefers_tabs);
// The first 64 KiB of a file. Throws std::runtime_error as open_bytes does, and where they are no text: a
// workbook, a picture, bytes at random.
std::string beginning_of_table(const std::string& path);
// The same as recognised_separator, of such a beginning, whose last line may be cut.
char separator_of_beginning(std::string_view text, bool prefers_tabs);

std::string separator_name(char separator);  // "semicolons"

// Whether it is a number written with a comma, and no number otherwise: 1,5.
bool is_comma_number(std::string_view field);
// 1,234 or 12,345,678: in English a comma between thousands, elsewhere a decimal one.
bool looks_like_thousands(std::string_view field);

}  // namespace bilevel
