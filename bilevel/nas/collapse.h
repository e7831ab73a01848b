#pragma once
// The published warnings that a search is about to collapse, and which epoch to go back to.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/nas/search_options.h"

namespace bilevel::nas {

struct Collapse {
  int64_t return_to = 0;  // epoch whose genotype is from before it
  std::string reason;
};

// What the criteria look at, epoch by epoch from 0.
struct CollapseSigns {
  std::vector<double> eigenvalues;  // dominant, of the validation loss in alpha
  std::vector<int64_t> skips;       // skip_connects of the (normal) cell
};

// eigenvalue (Zela et al. 2020, DARTS-ES): the eigenvalue's average over the last `window` epochs has grown
// so that average(e - window) / average(e) < ratio; the genotype is that of epoch e - window. skips (Liang et
// al. 2019, DARTS+): the cell has more than `most_skips`; the genotype is the last that has not, or the one
// with the fewest where none is.
std::optional<Collapse> find_collapse(const SearchOptions& options, const CollapseSigns& signs);

}  // namespace bilevel::nas
