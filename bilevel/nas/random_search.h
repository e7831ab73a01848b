#pragma once
// Random search without shared weights: cells drawn evenly, each trained by itself for some epochs on the
// training half and judged on the validation half. The baseline that every search has to beat.

#include <cstdint>
#include <functional>

#include "bilevel/data/augment.h"
#include "bilevel/nas/batch_ranks.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/search.h"
#include "bilevel/nas/train_options.h"

namespace bilevel::nas {

struct RandomSearch {
  SearchSpace space;
  NetworkOptions network;  // of the cells that are trained
  DeviceImages train, valid;
  TrainOptions training;  // its epochs for each cell
  int64_t samples = 10;
  uint64_t seed = 0;
  BatchRanks ranks = {};  // that train every cell together
};

// The one of `samples` random cells whose loss is least; cells without a finite loss do not take part.
// `tried`, if given, is called after every cell with the number of cells so far and the smallest loss. Throws
// NotFiniteError if no cell has a finite loss.
Genotype best_random_cell(const SearchSpace& space, int64_t samples, uint64_t seed,
                          const std::function<double(const Genotype&)>& loss,
                          const std::function<void(int64_t, double)>& tried = {});

// What SearchState::history already holds is not trained again. A record's `epoch` is the cell's number;
// hooks as in a search, `interrupted` asked after every training step.
SearchState begin_random_search(const RandomSearch& search);
SearchSummary random_search(const RandomSearch& search, const Benchmark* benchmark, SearchState state,
                            const SearchHooks& hooks);

}  // namespace bilevel::nas
