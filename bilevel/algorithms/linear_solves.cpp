#include "bilevel/algorithms/linear_solves.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace bilevel {
namespace {

constexpr int64_t solves_to_judge_by = 20;  // solves: a start that fails a few times may recover

}  // namespace

bool solve_failed(Status status, bool needs_positive) {
  switch (status) {
    case Status::diverged:
    case Status::not_finite:
      return true;
    case Status::negative_curvature:
      return needs_positive;
    default:
      return false;
  }
}

Status worse(Status a, Status b) { return std::max(a, b); }  // their order in Status

void SolveTally::count(bool failure) {
  ++all;
  if (failure) ++failed;
}

bool SolveTally::ends_run() const { return all >= solves_to_judge_by && most_failed(); }

int64_t times_of(Status status, const StatusCounts& statuses) {
  const auto found = statuses.find(std::string(name_of(status)));
  return found == statuses.end() ? 0 : found->second;
}

SolveTally tally_of(const StatusCounts& statuses, bool needs_positive) {
  SolveTally tally;
  for (const auto& [name, times] : statuses) tally.all += times;
  for (const Status status : {Status::diverged, Status::not_finite, Status::negative_curvature}) {
    if (solve_failed(status, needs_positive)) tally.failed += times_of(status, statuses);
  }
  return tally;
}

std::string statuses_text(const StatusCounts& statuses) {
  std::vector<std::pair<std::string, int64_t>> sorted(statuses.begin(), statuses.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, times] : sorted) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", times, name);
  }
  return text.empty() ? "none" : text;
}

}  // namespace bilevel
