#include "reproduce/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

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

namespace {

// Whether a is ahead of b; nothing where the runs do not decide it, with the reason where they are close.
struct Compared {
  std::optional<bool> ahead;
  std::string near = {};
};
Compared compared(Ahead ahead, const Side& a, const Side& b, int digits) {
  if (!a.whole() || !b.whole() || a.values.size() != b.values.size()) return {};
  std::vector<double> differences;  // positive: a is ahead
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double lower_by = b.values[i] - a.values[i];
    differences.push_back(ahead == Ahead::lower ? lower_by : -lower_by);
  }
  const Statistic by = statistic(differences);
  const double unknown = by.count > 1 ? 2 * by.deviation / std::sqrt(static_cast<double>(by.count)) : 0;
  if (by.mean < -unknown || (by.count == 1 && by.mean == 0)) return {false};
  if (by.mean > unknown) return {true};
  return {std::nullopt, fmt::format("; {} and {} are {:.{}f} apart, two standard errors are {:.{}f}", a.label,
                                    b.label, std::abs(by.mean), digits, unknown, digits)};
}

}  // namespace

Json each_ahead(const std::string& claim_text, const std::string& what, Ahead ahead,
                const std::vector<std::pair<Side, Side>>& pairs, int digits) {
  std::string why;
  std::set<std::string> named;
  for (const auto& [a, b] : pairs) {
    for (const Side* side : {&a, &b}) {
      if (!named.insert(side->label).second) continue;
      why += (why.empty() ? what + ": " : ", ") + side->text(digits);
    }
  }
  bool refuted = false, decided = true;
  for (const auto& [a, b] : pairs) {
    const Compared found = compared(ahead, a, b, digits);
    refuted = refuted || found.ahead == false;
    decided = decided && found.ahead.has_value();
    why += found.near;
  }
  return refuted || decided ? claim(claim_text, !refuted, why) : undecided(claim_text, why);
}

Json ahead_of_all(const std::string& claim_text, const std::string& what, Ahead ahead, const Side& ours,
                  const std::vector<Side>& others, int digits) {
  std::vector<std::pair<Side, Side>> pairs;
  for (const Side& other : others) pairs.emplace_back(ours, other);
  return each_ahead(claim_text, what, ahead, pairs, digits);
}

Json in_order(const std::string& claim_text, const std::string& what, Ahead ahead,
              const std::vector<Side>& best_first, int digits) {
  std::vector<std::pair<Side, Side>> pairs;
  for (size_t i = 1; i < best_first.size(); ++i) pairs.emplace_back(best_first[i - 1], best_first[i]);
  return each_ahead(claim_text, what, ahead, pairs, digits);
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
