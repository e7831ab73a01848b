#include "bilevel/nas/collapse.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace bilevel::nas {
namespace {

std::optional<Collapse> by_eigenvalue(const SearchOptions& options, const std::vector<double>& values) {
  const int64_t last = static_cast<int64_t>(values.size()) - 1;
  const int64_t window = options.stop_window;
  // Whole windows only: an eigenvalue near zero at the start grows whatever will come.
  if (last + 1 < 2 * window) return std::nullopt;
  const auto average = [&](int64_t end) {  // of the last `window` epochs up to `end`
    return std::accumulate(values.begin() + (end - window + 1), values.begin() + end + 1, 0.0) /
           static_cast<double>(window);
  };
  const double before = average(last - window), now = average(last);
  // An eigenvalue that is not positive is no sharp minimum, whatever the ratio.
  if (!(now > 0) || before >= options.stop_ratio * now) return std::nullopt;
  return Collapse{
      last - window,
      fmt::format("the dominant eigenvalue of the validation loss in alpha, averaged over {} epochs, grew "
                  "from {:.3g} to {:.3g} within {} epochs",
                  window, before, now, window)};
}

std::optional<Collapse> by_skips(const SearchOptions& options, const std::vector<int64_t>& skips) {
  if (skips.empty() || skips.back() <= options.most_skips) return std::nullopt;
  for (int64_t e = static_cast<int64_t>(skips.size()) - 2; e >= 0; --e) {
    if (skips[static_cast<size_t>(e)] <= options.most_skips) {
      return Collapse{
          e, fmt::format("the cell has {} skip connections, more than {}", skips.back(), options.most_skips)};
    }
  }
  const int64_t fewest = std::min_element(skips.begin(), skips.end()) - skips.begin();
  return Collapse{fewest, fmt::format("the cell had more than {} skip connections from the first epoch on",
                                      options.most_skips)};
}

}  // namespace

std::optional<Collapse> find_collapse(const SearchOptions& options, const CollapseSigns& signs) {
  if (options.stop == "eigenvalue") return by_eigenvalue(options, signs.eigenvalues);
  if (options.stop == "skips") return by_skips(options, signs.skips);
  return std::nullopt;
}

}  // namespace bilevel::nas
