#pragma once
// One architecture of a search space: what a search returns, what is counted, trained, drawn and looked up.
//
// Text forms, as people write them:
//   nasbench201        |nor_conv_3x3~0|+|none~0|skip_connect~1|+|nor_conv_1x1~0|none~1|avg_pool_3x3~2|
//   nasbench1shot1-3   conv3x3-bn-relu(0) maxpool3x3(0,1) ... output(2,5)
//   darts              normal: (sep_conv_3x3,0)(sep_conv_3x3,1) ... reduce: (max_pool_3x3,0)(max_pool_3x3,1)
//   ...

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/core/tensor.h"
#include "bilevel/nas/space.h"

namespace bilevel::nas {

struct GenotypeInput {
  int64_t from = 0;       // vertex of the cell: its inputs come first (one; two in DARTS), then its nodes
  std::string operation;  // on this edge; empty where the operation sits on the node (NAS-Bench-1Shot1)
  bool operator==(const GenotypeInput&) const = default;
};

struct GenotypeNode {
  std::string operation;  // of the node (NAS-Bench-1Shot1; "output" for the cell's output there); else empty
  std::vector<GenotypeInput> inputs;
  bool operator==(const GenotypeNode&) const = default;
};

struct CellGenotype {
  std::string name;  // "cell"; DARTS has "normal" and "reduce"
  std::vector<GenotypeNode> nodes;
  bool operator==(const CellGenotype&) const = default;
};

struct Genotype {
  std::string space;
  std::vector<CellGenotype> cells;
  bool operator==(const Genotype&) const = default;
};

// Throws std::invalid_argument that says where and what is wrong and what was expected.
Genotype parse_genotype(const SearchSpace& space, std::string_view text);
std::string genotype_text(const Genotype& genotype);
// {"space": ..., "cells": [{"name": ..., "nodes": [{"operation": ..., "inputs": [{"from": 0, "operation":
// ...}]}]}]}
Genotype genotype_from_json(const SearchSpace& space, std::string_view json);
std::string genotype_json(const Genotype& genotype);
// That every operation, vertex and number of inputs belongs to the space.
void validate_genotype(const SearchSpace& space, const Genotype& genotype);

// By the largest weights: argmax per edge (NAS-Bench-201, `none` allowed), argmax operation and the strongest
// parents (1Shot1), two strongest edges per node by their best operation that is not `none` (DARTS).
Genotype derive_genotype(const SearchSpace& space, const Tensor& mixture);
// The weights that make the supernet compute this genotype alone: ones for what it has, zeros for the rest.
Tensor genotype_mixture(const SearchSpace& space, const Genotype& genotype, const at::TensorOptions& options);
Genotype random_genotype(const SearchSpace& space, Random& random);

// Which share of the edges (of the nodes in 1Shot1) each operation has, in the space's order of operations.
std::vector<double> operation_shares(const SearchSpace& space, const Genotype& genotype);
// Edges of the first cell (DARTS: the normal cell) that are skip_connect.
int64_t skip_count(const Genotype& genotype);

// The cells as a graphviz graph, left to right.
std::string genotype_dot(const Genotype& genotype);

}  // namespace bilevel::nas
