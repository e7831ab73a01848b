#pragma once
// What a search has to beat, trained beside it: random cells of its space, and the cell whose every operation
// is the 3x3 convolution. The cell that was found is trained in the same way.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bilevel/nas/genotype.h"
#include "bilevel/nas/random_search.h"

namespace bilevel::nas {

struct TrainedCell {
  std::string name;  // found, all-3x3, random-1, ...
  Genotype genotype;
  double accuracy = 0;  // after the last epoch, in percent
};

struct CellBaselineHooks {
  std::function<void(const std::string&)> message = {};
  std::function<bool()> interrupted = {};  // asked after every training step
};

// Every edge, or node, the space's 3x3 convolution. Throws std::invalid_argument for a space that has none
// (make_space with some of the operations).
Genotype all_3x3_cell(const SearchSpace& space);
bool has_3x3(const SearchSpace& space);

// `plan.samples` random cells as `random_search` draws them, all-3x3 where the space has it, and `found`,
// each trained on plan.train and judged on plan.valid. What was trained before an interruption.
std::vector<TrainedCell> train_cell_baselines(const RandomSearch& plan, const Genotype& found,
                                              const CellBaselineHooks& hooks);

}  // namespace bilevel::nas
