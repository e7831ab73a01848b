// A genotype as the weights of the supernet's choices.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "bilevel/nas/genotype.h"

namespace bilevel::nas {
namespace {

// Blocks of zeros that take ones where something is chosen; shares are even.
class Choices {
 public:
  explicit Choices(const SearchSpace& space) : space_(space) {
    for (const AlphaBlock& block : space.alpha) {
      blocks_[block.name] = at::zeros({block.rows, block.choices}, at::TensorOptions().dtype(at::kDouble));
      if (block.shares) blocks_[block.name].fill_(1.0 / static_cast<double>(block.choices));
    }
  }
  bool has(const std::string& block) const { return blocks_.count(block) > 0; }
  void choose(const std::string& block, int64_t row, int64_t choice) { blocks_.at(block)[row][choice] = 1.0; }
  int64_t operation(const std::string& name) const {
    const auto& all = space_.operations;
    return std::find(all.begin(), all.end(), name) - all.begin();
  }
  Tensor flat() const {
    std::vector<Tensor> parts;
    for (const AlphaBlock& block : space_.alpha) parts.push_back(blocks_.at(block.name).flatten());
    return at::cat(parts);
  }

 private:
  const SearchSpace& space_;
  std::map<std::string, Tensor> blocks_;
};

void choose_parents(Choices& choices, const std::string& block, const GenotypeNode& node) {
  if (!choices.has(block)) return;  // all of them, without a choice
  for (const GenotypeInput& input : node.inputs) choices.choose(block, 0, input.from);
}

void choose_edges(Choices& choices, const std::string& block, const CellGenotype& cell, int64_t inputs) {
  int64_t first = 0;
  for (size_t n = 0; n < cell.nodes.size(); ++n) {
    for (const GenotypeInput& input : cell.nodes[n].inputs) {
      choices.choose(block, first + input.from, choices.operation(input.operation));
    }
    first += static_cast<int64_t>(n) + inputs;
  }
}

}  // namespace

Tensor genotype_mixture(const SearchSpace& space, const Genotype& genotype,
                        const at::TensorOptions& options) {
  validate_genotype(space, genotype);
  Choices choices(space);
  switch (space.kind) {
    case SpaceKind::nasbench201:
      choose_edges(choices, "edges", genotype.cells[0], 1);
      break;
    case SpaceKind::darts:
      choose_edges(choices, "normal", genotype.cells[0], 2);
      choose_edges(choices, "reduce", genotype.cells[1], 2);
      break;
    case SpaceKind::nasbench1shot1: {
      const auto& nodes = genotype.cells[0].nodes;
      for (int64_t j = 1; j <= space.nodes; ++j) {
        const GenotypeNode& node = nodes[static_cast<size_t>(j) - 1];
        choices.choose("operations", j - 1, choices.operation(node.operation));
        choose_parents(choices, fmt::format("parents-{}", j), node);
      }
      choose_parents(choices, "output", nodes.back());
      break;
    }
  }
  return choices.flat().to(options);
}

}  // namespace bilevel::nas
