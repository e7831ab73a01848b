#pragma once
// Search spaces as data: which operations compete, and the shape of alpha, the outer vector of a search. The
// networks are in supernet.h (all operations at once) and network.h (one genotype); what a search returns is
// in genotype.h.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel::nas {

enum class SpaceKind { nasbench201, nasbench1shot1, darts };

// A part of alpha: `rows` independent choices among `choices`; softmax acts along a row.
struct AlphaBlock {
  std::string name;
  int64_t rows = 0;
  int64_t choices = 0;
  bool shares = false;  // of a node's inputs in their sum: nothing is chosen from them
};

struct SearchSpace {
  std::string name;
  SpaceKind kind = SpaceKind::nasbench201;
  std::vector<std::string> operations;  // that compete, in the official order
  int64_t nodes = 0;                    // of a cell, without its inputs and its output
  // NAS-Bench-1Shot1 alone: how many parents the nodes (from the second vertex on) and, last, the output
  // keep.
  std::vector<int64_t> parents;
  std::vector<AlphaBlock> alpha;  // in the order of the flat vector

  int64_t alpha_size() const;
  bool has_block(std::string_view name) const;
  // The entries of a block as a rows x choices view of a flat vector of alpha's size; throws
  // std::invalid_argument on an unknown name.
  Tensor block(const Tensor& flat, std::string_view name) const;
};

const std::vector<std::string>& space_names();
// `operations` narrows the space to some of its operations (at least two, any order; the official order is
// kept); empty = all. Throws std::invalid_argument naming what is unknown and what there is.
SearchSpace make_space(std::string_view name, const std::vector<std::string>& operations = {});

// With a block of shares for every node that several edges of operations enter: a softmax over its inputs, by
// which what they bring is weighted (edge normalisation, Xu et al., PC-DARTS, ICLR 2020). In NAS-Bench-1Shot1
// nodes weigh their inputs as it is.
SearchSpace with_input_shares(SearchSpace space);
// The name of that block; `cell` is the block of the cell's operations.
std::string input_shares_name(std::string_view cell, int64_t node);

// alpha ~ 1e-3 * normal: every space's published start.
Tensor initial_alpha(const SearchSpace& space, uint64_t seed, const at::TensorOptions& options);
// The weights of the mixed operations: softmax of alpha along each row, flat in alpha's order,
// differentiable.
Tensor mixture_weights(const SearchSpace& space, const Tensor& alpha);

}  // namespace bilevel::nas
