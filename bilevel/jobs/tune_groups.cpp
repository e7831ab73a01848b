#include "bilevel/jobs/tune_groups.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/fields/option_text.h"

namespace bilevel {
namespace {

constexpr int64_t largest_groups_file = int64_t{1} << 32;  // bytes

std::vector<std::string> read_groups(const std::string& path, size_t expected) {
  std::vector<std::string> names;
  LineReader lines(path, largest_groups_file);
  for (std::string_view line; lines.next(line);) {
    if (trimmed(line).empty()) {
      line_error(path, lines.number(), "the name of a group", "an empty line", "write one name per line");
    }
    names.emplace_back(trimmed(line));
  }
  if (names.size() != expected) {
    line_error(path, 0, fmt::format("{} names of groups, one per feature", expected),
               fmt::format("{}", names.size()), "name the group of every feature, in order, one per line");
  }
  return names;
}

}  // namespace

FeatureGroups feature_groups(const std::string& rule, const std::vector<std::string>& features) {
  FeatureGroups groups;
  if (rule == "prefix") {
    for (const std::string& feature : features) {
      groups.names.push_back(feature.substr(0, feature.find_first_of("_=")));
    }
  } else {
    groups.names = read_groups(rule, features.size());
  }
  std::map<std::string, int64_t> numbers;
  std::vector<int64_t> of_column;
  for (const std::string& name : groups.names) {
    of_column.push_back(numbers.try_emplace(name, static_cast<int64_t>(numbers.size())).first->second);
  }
  if (rule == "prefix" && numbers.size() == features.size()) {
    throw OptionError(fmt::format(
        "{}: no two features have names that agree up to a _ or =; name the groups in a file, one per line",
        named("groups", rule)));
  }
  groups.of_column = at::tensor(of_column, at::kLong);
  return groups;
}

}  // namespace bilevel
