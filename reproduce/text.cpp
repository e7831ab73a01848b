// An item's result as text: its tables in columns, its notes, and whether its claims hold.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "reproduce/reproduce.h"

namespace bilevel::reproduce {
namespace {

std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return value.dump();
}

std::string table_text(const Json& table) {
  std::string text = table.at("title").get<std::string>() + "\n";
  const Json& rows = table.at("rows");
  if (rows.empty()) return text;
  std::vector<std::string> columns;
  for (const auto& [name, value] : rows.front().items()) columns.push_back(name);
  std::map<std::string, size_t> width;
  for (const std::string& column : columns) {
    width[column] = column.size();
    for (const Json& row : rows)
      width[column] = std::max(width[column], cell(row.value(column, Json())).size());
  }
  for (const std::string& column : columns) text += fmt::format("{:>{}}", column, width[column] + 2);
  text += "\n";
  for (const Json& row : rows) {
    for (const std::string& column : columns)
      text += fmt::format("{:>{}}", cell(row.value(column, Json())), width[column] + 2);
    text += "\n";
  }
  return text + "\n";
}

std::string verdict(const Json& holds) {
  return holds.is_null() ? "undecided" : holds.get<bool>() ? "holds" : "does not hold";
}

}  // namespace

std::string result_text(const Json& result) {
  std::string text;
  for (const Json& each : result.at("tables")) text += table_text(each);
  for (const Json& note : result.value("notes", Json::array())) text += note.get<std::string>() + "\n";
  for (const Json& each : result.at("claims")) {
    text += fmt::format("{}: {} ({})\n", verdict(each.at("holds")), each.at("claim").get<std::string>(),
                        each.at("why").get<std::string>());
  }
  return text;
}

}  // namespace bilevel::reproduce
