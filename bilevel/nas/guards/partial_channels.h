#pragma once
// Partial channels (Xu et al., PC-DARTS, ICLR 2020): of K channels one goes through an edge's operations, the
// others pass it by, and the channels are shuffled so that the next edge sees others. Operations without
// weights, which do well while the others are untrained, then gain less of a lead, and the operations'
// features are a Kth as large. So that few channels do not make the choice of edges restless, what enters a
// node is weighted by a softmax over its inputs, which moves with alpha (edge normalisation).
//
// The network itself is another one, with fewer weights, so that it is laid out for it (SupernetOptions).

#include <string_view>
#include <vector>

#include "bilevel/nas/guards/guard.h"
#include "bilevel/nas/operations.h"

namespace bilevel::nas {

class PartialChannels : public Guard {
 public:
  // `engine` must outlive this object. Throws std::invalid_argument where the supernet was not laid out for
  // the strength K (0 and 1: all channels).
  PartialChannels(const Problem& engine, const SupernetProblem& supernet, double strength);

  double set_epoch(const SearchTime&) override { return strength_; }  // the same in all epochs

 private:
  double strength_;
};

// A feature in two: the first of every K channels' worth, and the others, which go by. With K = 1 nothing
// does, to the bit.
class SplitChannels {
 public:
  SplitChannels(const Feature& x, int64_t partial);
  const Feature& active() const { return active_; }
  // With what goes by, brought to the size of `y` by a maximum over pairs where that is half, and shuffled.
  Feature joined(const Feature& y) const;

 private:
  int64_t partial_;
  Feature active_, others_;
};

// mixed_edges() on a part of the channels.
std::vector<Feature> partial_edges(Pass& pass, const Feature& x, const MixedEdges& edges,
                                   const Tensor& weights, int64_t partial);

// Times the share of the edge in its node, where the space has shares; `cell` is the block of the operations,
// nodes count from 1, inputs from 0.
Feature by_input_share(const Pass& pass, const SearchSpace& space, const Tensor& mixture,
                       std::string_view cell, int64_t node, int64_t input, const Feature& x);

}  // namespace bilevel::nas
