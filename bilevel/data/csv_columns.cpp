#include "bilevel/data/csv_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "bilevel/data/file_error.h"
#include "bilevel/data/npy_header.h"

namespace bilevel {

std::vector<size_t> match_columns(const std::string& path, int64_t line,
                                  const std::vector<std::string>& names, const std::string& like,
                                  const std::vector<std::string>& wanted) {
  std::vector<size_t> places(names.size());
  std::iota(places.begin(), places.end(), size_t{0});
  if (names == wanted) return places;
  using Positions = std::map<std::string, size_t>;
  const auto positions = [&](const std::vector<std::string>& some, const std::string& table) {
    Positions found;
    for (size_t i = 0; i < some.size(); ++i) {
      if (found.emplace(some[i], i).second) continue;
      line_error(path, line, fmt::format("the columns of {} in its order, or every name once", like),
                 fmt::format("another order, and {} twice in {}", printable(some[i]), table),
                 "give every column a name of its own");
    }
    return found;
  };
  const Positions here = positions(names, path), there = positions(wanted, like);
  const auto only_in = [](const std::vector<std::string>& some, const Positions& others) {
    const auto found = std::find_if(some.begin(), some.end(),
                                    [&](const std::string& name) { return others.count(name) == 0; });
    return found == some.end() ? std::string() : printable(*found);
  };
  const std::string missing = only_in(wanted, here), extra = only_in(names, there);
  if (!missing.empty() || !extra.empty()) {
    line_error(path, line, fmt::format("the columns of {}", like),
               fmt::format("{}{}{}", missing.empty() ? "" : "no column " + missing,
                           missing.empty() || extra.empty() ? "" : " and ",
                           extra.empty() ? "" : "a column " + extra + " that it does not have"),
               "give all tables the same columns; their order does not matter");
  }
  for (size_t i = 0; i < names.size(); ++i) places[i] = there.at(names[i]);
  return places;
}

}  // namespace bilevel
