#pragma once
// The network of a NAS-Bench-101 cell (Ying et al., ICML 2019, section 2.3): a 3x3 stem, three stacks of
// cells with 2x2 max pools between them, channels doubling, global average pool, linear layer. It takes the
// graph itself, because tables hold graphs that are no genotype of a search space.

#include <cstdint>
#include <vector>

#include "bilevel/nas/graph101.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/pass.h"

namespace bilevel::nas {

// Channels of every vertex: the output's are divided among those that reach it directly, and every other one
// has as many as the widest it leads to. The graph must be pruned.
std::vector<int64_t> vertex_channels101(const Graph101& graph, int64_t input_channels,
                                        int64_t output_channels);

// `cell` must be pruned, and the options complete.
Feature walk_network101(Pass& pass, const Graph101& cell, const NetworkOptions& options,
                        const Feature& images);

// What the network of any cell holds and costs; prunes it first.
NetworkPlan plan_network101(const Graph101& graph, const NetworkOptions& options = {});

}  // namespace bilevel::nas
