#pragma once
// The operations that compete on an edge, by their official names: one at a time in a derived network, all at
// once in a supernet.
//
// In a supernet several edges leave the same node, each with its own copy of every operation. All copies of
// an operation read the same feature, so their convolutions are one convolution with more output channels (or
// more groups), their norms one norm, and operations without weights are computed once: the same mathematics
// in a third of the kernels. The plain form, copy by copy, is the reference (PassOptions::merged = false).

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/nas/pass.h"

namespace bilevel::nas {

// One operation with learned norms. Throws std::invalid_argument on an unknown name.
Feature apply_operation(Pass& pass, const std::string& operation, const Feature& x, int64_t stride);

// ReLU, convolution, norm.
Feature relu_convolve_normalize(Pass& pass, const Feature& x, const Convolution& c, bool affine);
// Convolution, norm, ReLU.
Feature convolve_normalize_relu(Pass& pass, const Feature& x, const Convolution& c, bool affine = true);
// Half the size by two grids of 1 x 1 convolutions (DARTS).
Feature factorized_reduce(Pass& pass, const Feature& x, int64_t outputs, bool affine);

struct MixedEdges {
  std::vector<std::string> operations;
  int64_t copies = 1;  // edges that leave x
  int64_t stride = 1;
  bool norm_pools = false;  // DARTS normalises the pools of its search network, NAS-Bench-201 does not
};
// For each edge d the mixture sum_o weights[d][o] * o_d(x), with norms that have no learned scale.
std::vector<Feature> mixed_edges(Pass& pass, const Feature& x, const MixedEdges& edges,
                                 const Tensor& weights);

}  // namespace bilevel::nas
