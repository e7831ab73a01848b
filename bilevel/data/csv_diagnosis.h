#pragma once
// Why a table is not read as numbers, and what to do about it: another separator, a missing value, a decimal
// comma, names where numbers are needed. What people bring is seldom damaged; it is written in another way.

#include <string>
#include <string_view>

namespace bilevel {

enum class CsvColumn { feature, label, group };

// The way out for a field that is no finite number: the end of a sentence.
std::string way_out_of_field(std::string_view field, CsvColumn column);

// Empty, NA, ?, nan and the like: what programs write where a value is missing.
bool is_missing(std::string_view field);

// The same in a column of text, where a dash or "none" may be a category.
bool is_missing_text(std::string_view field);

// True or False, as programs write what they keep as 1 and 0.
bool is_truth(std::string_view field);

std::string in_small_letters(std::string_view text);

// Groups of digits as dates have them, with a time or without: 2024-01-31, 31.1.2024, 1/31/24,
// 2024-01-31T12:30.
bool looks_like_date(std::string_view field);

// Whether a column is called like an id: id, index, PassengerId, user_id, or nothing at all, as pandas names
// the column of row numbers.
bool is_id_name(std::string_view name);

// The way out for a line whose fields are separated by something else than `separator`; empty where it is
// not. Only asked where reading has failed, or where the whole line is one field.
std::string way_out_of_separator(std::string_view line, char separator);

}  // namespace bilevel
