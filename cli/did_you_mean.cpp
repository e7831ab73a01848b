#include "cli/did_you_mean.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace bilevel::cli {
namespace {

// Letters to add, drop, replace or swap with their neighbour (Damerau and Levenshtein, each place once).
size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({replaced, cost[i - 1][j] + 1, cost[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string nearest(const std::string& typed, const std::vector<std::string>& names) {
  constexpr size_t longest = 64;  // of what a person types by mistake
  if (typed.size() > longest) return "";
  // An option that is cut short is meant, too: --iter for --iterations.
  std::pair<size_t, std::string> best{std::max<size_t>(typed.size() / 3, 1) + 1, ""};
  for (const std::string& name : names) {
    const bool cut_short = typed.size() >= 5 && name.starts_with(typed);
    const size_t distance = cut_short ? 1 : edits(typed, name);
    if (distance < best.first) best = {distance, name};
  }
  return best.second;
}

}  // namespace bilevel::cli
