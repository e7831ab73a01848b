#pragma once
// What the network of a NAS-Bench-101 cell costs, without building it: a 3x3 stem of 128 channels, three
// stacks of three cells with 2x2 max pools between them, channels doubling, global average pool, linear layer
// (Ying et al., ICML 2019, section 2.3).

#include <cstdint>
#include <vector>

#include "bilevel/nas/graph101.h"

namespace bilevel::nas {

struct Cost101 {
  int64_t parameters = 0;     // trainable: convolutions, batch norms' scales and offsets, linear layer
  int64_t multiply_adds = 0;  // of convolutions and the linear layer, for one 32 x 32 image
  bool operator==(const Cost101&) const = default;
};

// Channels of every vertex: the output's are divided among those that reach it directly, and every other one
// has as many as the widest it leads to. The graph must be pruned.
std::vector<int64_t> vertex_channels101(const Graph101& graph, int64_t input_channels,
                                        int64_t output_channels);

Cost101 cost101(const Graph101& graph);  // prunes it first

}  // namespace bilevel::nas
