#include "reproduce/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reproduce/statistic.h"

namespace bilevel::reproduce {

bool Side::whole() const {
  return !values.empty() &&
         std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

std::string Side::text(int digits) const {
  const Statistic known = statistic(values);
  const auto all = static_cast<int64_t>(values.size());
  if (known.count == all) return fmt::format("{} {}", label, known.text(digits));
  if (all == 1) return label + " (ended badly)";
  return fmt::format("{} {} ({} of {} runs ended badly)", label, known.text(digits), all - known.count, all);
}

Json ahead_of_all(const std::string& claim_text, const std::string& what, Ahead ahead, const Side& ours,
                  const std::vector<Side>& others, int digits) {
  std::string why = fmt::format("{}: {}", what, ours.text(digits));
  for (const Side& other : others) why += ", " + other.text(digits);
  if (!ours.whole()) return undecided(claim_text, why);
  bool decided = true;
  for (const Side& other : others) {
    if (!other.whole() || other.values.size() != ours.values.size()) {
      decided = false;
      continue;
    }
    std::vector<double> differences;  // positive: ours is ahead
    for (size_t i = 0; i < ours.values.size(); ++i) {
      const double lower_by = other.values[i] - ours.values[i];
      differences.push_back(ahead == Ahead::lower ? lower_by : -lower_by);
    }
    const Statistic by = statistic(differences);
    const double unknown = by.count > 1 ? 2 * by.deviation / std::sqrt(static_cast<double>(by.count)) : 0;
    if (by.mean < -unknown || (by.count == 1 && by.mean == 0)) return claim(claim_text, false, why);
    if (by.mean <= unknown) {
      decided = false;
      why += fmt::format("; {} and {} are {:.{}f} apart, two standard errors are {:.{}f}", ours.label,
                         other.label, std::abs(by.mean), digits, unknown, digits);
    }
  }
  return decided ? claim(claim_text, true, why) : undecided(claim_text, why);
}

std::string length_text(const TimedResult& result, int64_t all_iterations) {
  return fmt::format("{} {} after {} of {} iterations", result.label,
                     result.ended_well() ? "was cut short" : "ended badly", result.summary.state.iteration,
                     all_iterations);
}

Json ahead_along(const std::string& claim_text, RunAxis axis, int64_t all_iterations,
                 const std::vector<TimedResult>& results, bool (*others)(const TimedResult&)) {
  const TimedResult& ours = results.front();
  const auto is_short = [all_iterations](const TimedResult& r) {
    return r.ended_well() && r.summary.state.iteration < all_iterations;
  };
  double common = ours.end(axis);
  std::string cut = is_short(ours) ? length_text(ours, all_iterations) + "; " : "";
  std::vector<const TimedResult*> rivals;
  for (const TimedResult& r : results) {
    if (&r == &ours || !others(r)) continue;
    rivals.push_back(&r);
    if (!r.ended_well()) continue;
    common = std::min(common, r.end(axis));
    if (axis == RunAxis::iterations && is_short(r)) cut += length_text(r, all_iterations) + "; ";
  }
  std::vector<Side> theirs;
  for (const TimedResult* r : rivals) theirs.push_back({r->label, {r->loss_at(axis, common)}});
  const std::string what = axis == RunAxis::iterations
                               ? fmt::format("validation losses after {:.0f} iterations", common)
                               : fmt::format("validation losses after {:.3g} {}", common, label_of(axis));
  const Json found =
      ahead_of_all(claim_text, what, Ahead::lower, {ours.label, {ours.loss_at(axis, common)}}, theirs);
  return cut.empty() ? found : undecided(claim_text, cut + found.at("why").get<std::string>());
}

}  // namespace bilevel::reproduce
