#pragma once
// The network of a search: every operation of the space on every edge, weighted by a mixture (softmax of
// alpha, or a choice of one operation). A pure function of flat vectors; norms use the batch's statistics.

#include <cstdint>
#include <memory>
#include <set>

#include "bilevel/core/tensor.h"
#include "bilevel/nas/pass.h"
#include "bilevel/nas/space.h"

namespace bilevel::nas {

struct SupernetOptions {
  int64_t channels = 16;       // of the first stage; doubled at every reduction
  int64_t cells = 0;           // as the space's papers count: a stage in NAS-Bench-201 (5), in all elsewhere
                               // (9 in 1Shot1, 8 in DARTS); 0 = those
  int64_t input_channels = 3;  // of the images
  int64_t height = 32, width = 32;
  int64_t classes = 10;
  int64_t partial = 1;  // one channel in so many goes through the operations (guards/partial_channels.h)
  bool merged = true;   // false: the plain form, for reference
  void validate(const SearchSpace& space) const;
};

int64_t default_search_cells(SpaceKind kind);
// Which of the cells of 1Shot1 and DARTS come after a halving (are reduction cells in DARTS): those at one
// and two thirds.
std::set<int64_t> reduction_cells(int64_t cells);

class Supernet {
 public:
  // Where channels are partial, space() has shares of inputs (with_input_shares).
  Supernet(SearchSpace space, const SupernetOptions& options);

  // `mixture`: the weights of all choices, flat in alpha's order. Images x classes, differentiable in w and
  // mixture. `norms`: where the images are one rank's part of a batch, over whose images norms take their
  // statistics.
  Tensor logits(const Tensor& w, const Tensor& mixture, const Tensor& images,
                const std::shared_ptr<NormSums>& norms = nullptr) const;

  const SearchSpace& space() const { return space_; }
  const SupernetOptions& options() const { return options_; }
  const NetworkPlan& plan() const { return plan_; }

 private:
  Feature walk(Pass& pass, const Feature& images, const Tensor& mixture) const;

  SearchSpace space_;
  SupernetOptions options_;
  NetworkPlan plan_;
};

// The three networks; supernet_*.cpp.
Feature walk_nasbench201(Pass& pass, const SearchSpace& space, const SupernetOptions& options,
                         const Feature& images, const Tensor& mixture);
Feature walk_nasbench1shot1(Pass& pass, const SearchSpace& space, const SupernetOptions& options,
                            const Feature& images, const Tensor& mixture);
Feature walk_darts(Pass& pass, const SearchSpace& space, const SupernetOptions& options,
                   const Feature& images, const Tensor& mixture);

}  // namespace bilevel::nas
