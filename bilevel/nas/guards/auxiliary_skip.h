#pragma once
// The auxiliary skip connection (Chu et al., DARTS-, ICLR 2021): on every edge the skip's output is added
// once more, times a factor that falls along a line from the strength in the first epoch towards 0. A skip
// helps a network that is being trained whatever the cell is worth; what this one helps with, the competing
// skip need not grow for.
//
// On an edge that keeps the size that is the edge's input; on one that halves it, the skip's own reduction,
// with its weights (the authors' code has a second one there). So it is a larger weight of skip_connect in
// the mixture, which every engine can have.

#include "bilevel/nas/guards/guard.h"

namespace bilevel::nas {

class AuxiliarySkip : public Guard {
 public:
  // Both must outlive this object, which takes its skip away again when it goes. `strength`: the factor in
  // the first epoch. Throws std::invalid_argument where no skip_connect is among the space's operations.
  AuxiliarySkip(const Problem& engine, SupernetProblem& supernet, double strength);
  ~AuxiliarySkip() override;
  AuxiliarySkip(const AuxiliarySkip&) = delete;
  AuxiliarySkip& operator=(const AuxiliarySkip&) = delete;

  double set_epoch(const SearchTime& now) override;

 private:
  SupernetProblem& supernet_;
  double strength_;
  Tensor skips_;  // 1 where the mixture's entry is a skip_connect
};

}  // namespace bilevel::nas
