#pragma once
// A grid of runs, algorithm by seed, dealt out to the ranks of a group: one after the other, and all ranks
// get all results in the grid's order. Without a group it is a loop.

#include <cstddef>
#include <vector>

#include "bilevel/check/packed_solve.h"
#include "bilevel/distributed/process_group.h"
#include "reproduce/reproduce.h"

namespace bilevel::reproduce {

template <typename Run, typename Pack, typename Unpack>  // run(i), pack(result), unpack(packed)
auto dealt(const ReproduceOptions& options, size_t count, const Run& run, const Pack& pack,
           const Unpack& unpack) {
  std::vector<decltype(run(size_t{0}))> results;
  if (!options.group) {
    for (size_t i = 0; i < count; ++i) results.push_back(run(i));
    return results;
  }
  const auto rank = static_cast<size_t>(options.group->rank()),
             size = static_cast<size_t>(options.group->size());
  Packed mine = Packed::array();
  results.resize(count);
  for (size_t i = rank; i < count; i += size) {
    results[i] = run(i);
    mine.push_back(pack(results[i]));
  }
  const std::vector<Packed> all = exchange_packed(*options.group, mine);
  for (size_t i = 0; i < count; ++i) {
    if (i % size != rank) results[i] = unpack(all[i % size].at(i / size));
  }
  return results;
}
template <typename Run>  // run(i) gives a SolveSummary
std::vector<SolveSummary> dealt_solves(const ReproduceOptions& options, size_t count, const Run& run) {
  return dealt(
      options, count, run, [](const SolveSummary& s) { return packed(s); }, unpacked);
}

}  // namespace bilevel::reproduce
