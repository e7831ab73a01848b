#pragma once
// A search from its start to its end, without a folder.

#include "bilevel/nas/search.h"

namespace bilevel::nas {

inline SearchSummary run_search(SupernetProblem& problem, const SearchOptions& options) {
  Search search(problem, options, nullptr);
  return search.run(search.begin(), {});
}

}  // namespace bilevel::nas
