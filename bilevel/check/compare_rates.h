#pragma once
// Of compare (compare.h): which rates an algorithm is run with, and how long its schedules are. Internal to
// check/.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/check/compare.h"

namespace bilevel {

// What takes part in a comparison: a row of the registry, or an OwnAlgorithm with its name.
struct Competitor {
  std::string name;
  Family family = Family::warm;
  MakeAlgorithm make = {};
  std::shared_ptr<const Algorithm> as_it_is = {};
  bool of_registry = false;
};
// In the order of the options. Throws std::invalid_argument on a name that is unknown or listed twice.
std::vector<Competitor> competitors(const CompareOptions& options);

StreamOptions batches_of(const CompareOptions& options, const Competitor& one);

// Whether a cosine or linear schedule is among them, whose length must be known.
bool has_schedule_with_end(const AlgorithmSettings& settings);
// The same settings with schedules that end after so many outer iterations; inner steps are counted on from
// one to the next.
AlgorithmSettings with_schedule_end(AlgorithmSettings settings, int64_t iterations);
// How many iterations of the algorithm the budget allows, from a twentieth of it run without schedules.
int64_t iterations_within(const Problem& problem, const Competitor& one, AlgorithmSettings settings,
                          const SolveOptions& budget);

// The yardstick at a record with points; nullopt where it cannot be measured, which is a failed candidate.
using Score = std::function<std::optional<double>(const SolveRecord& record)>;

struct RateCandidate {
  AlgorithmSettings settings;
  double value = 0;     // the highest that the search's seeds ended at
  bool lowers = false;  // every seed ended below where it began
};
struct RateCandidates {
  std::vector<RateCandidate> best_first;  // those that ended well; never empty
  int64_t tried = 0, failed = 0;
};
// Every pair of rates with the same part of the search's budget. Where all of them fail, the smallest pair is
// the only candidate. `iterations`: how many a whole run has, for schedules with an end.
RateCandidates search_rates(const Problem& problem, const CompareOptions& options, const Competitor& one,
                            int64_t iterations, const Score& score, const CompareProgress& progress);

}  // namespace bilevel
