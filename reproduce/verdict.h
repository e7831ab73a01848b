#pragma once
// What several runs say about "this one is ahead of those": it holds, it does not, or they do not decide it.
// A run that ended badly has no result, and one that was cut short not the same one; neither is a run that
// was beaten.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reproduce/items.h"
#include "reproduce/runs.h"

namespace bilevel::reproduce {

struct Side {
  std::string label;
  std::vector<double> values;  // by seed, in one order for all sides; NaN: that run ended badly
  bool whole() const;          // none of them did
  std::string text(int digits) const;
};

enum class Ahead { lower, higher };

// Whether the first of every pair is ahead of the second. Of several seeds a mean counts as ahead where it is
// so by more than two standard errors of the differences by seed; of one seed any difference counts. A second
// one that is ahead by that much refutes the claim, whatever became of the rest. `what` the values are opens
// the explanation.
Json each_ahead(const std::string& claim_text, const std::string& what, Ahead ahead,
                const std::vector<std::pair<Side, Side>>& pairs, int digits = 3);
// Whether `ours` is ahead of every one of the others.
Json ahead_of_all(const std::string& claim_text, const std::string& what, Ahead ahead, const Side& ours,
                  const std::vector<Side>& others, int digits = 3);
// Whether each is ahead of the next one.
Json in_order(const std::string& claim_text, const std::string& what, Ahead ahead,
              const std::vector<Side>& best_first, int digits = 3);

// "FSLA was cut short after 61 of 2000 iterations", or ended badly.
std::string length_text(const TimedResult& result, int64_t all_iterations);

// Whether the first of the results has the lowest validation loss of those that `others` selects, where all
// of them are as far along the axis as the one that came least far. Undecided where the first one has not all
// its iterations and, by iterations, where another has not.
Json ahead_along(const std::string& claim_text, RunAxis axis, int64_t all_iterations,
                 const std::vector<TimedResult>& results, bool (*others)(const TimedResult&));

}  // namespace bilevel::reproduce
