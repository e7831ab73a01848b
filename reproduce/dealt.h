#pragma once
// A grid of runs, algorithm by seed, dealt out to the ranks of a group: one after the other, and all ranks
// get all results in the grid's order. Without a group it is a loop. Runs that had ended before the item was
// interrupted are not made again.

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "bilevel/check/packed_solve.h"
#include "bilevel/distributed/process_group.h"
#include "reproduce/finished_runs.h"
#include "reproduce/reproduce.h"

namespace bilevel::reproduce {

template <typename Run, typename Pack, typename Unpack>  // run(i), pack(result), unpack(packed)
auto dealt(const ReproduceOptions& options, size_t count, const Run& run, const Pack& pack,
           const Unpack& unpack) {
  std::vector<decltype(run(size_t{0}))> results(count);
  const size_t grid = options.finished ? options.finished->next_grid() : 0;
  std::vector<size_t> missing;
  for (size_t i = 0; i < count; ++i) {
    const auto known = options.finished ? options.finished->find(grid, i) : std::nullopt;
    // Ranks that look at different times, or that see another folder, must deal out the same runs.
    if (options.group ? options.group->any(!known) : !known) {
      missing.push_back(i);
    } else {
      results[i] = unpack(*known);
    }
  }
  const size_t rank = options.group ? static_cast<size_t>(options.group->rank()) : 0,
               size = options.group ? static_cast<size_t>(options.group->size()) : 1;
  Packed mine = Packed::array();
  for (size_t k = rank; k < missing.size(); k += size) {
    const size_t i = missing[k];
    results[i] = run(i);
    if (!options.finished && !options.group) continue;
    Packed result = pack(results[i]);
    if (options.finished) options.finished->keep(grid, i, result);
    if (options.group) mine.push_back(std::move(result));
  }
  if (!options.group) return results;
  const std::vector<Packed> all = exchange_packed(*options.group, mine);
  for (size_t k = 0; k < missing.size(); ++k) {
    if (k % size != rank) results[missing[k]] = unpack(all[k % size].at(k / size));
  }
  return results;
}
template <typename Run>  // run(i) gives a SolveSummary
std::vector<SolveSummary> dealt_solves(const ReproduceOptions& options, size_t count, const Run& run) {
  return dealt(
      options, count, run, [](const SolveSummary& s) { return packed(s); }, unpacked);
}

}  // namespace bilevel::reproduce
