#include "bilevel/nas/space.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"

namespace bilevel::nas {
namespace {

constexpr double initial_scale = 1e-3;

// Dong and Yang, "NAS-Bench-201", ICLR 2020, section 2.1.
SearchSpace nasbench201() {
  SearchSpace space;
  space.kind = SpaceKind::nasbench201;
  space.operations = {"none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"};
  space.nodes = 3;
  space.alpha = {{"edges", 6, 0}};
  return space;
}

// Liu, Simonyan and Yang, "DARTS", ICLR 2019, section 2.1: node i is reached from both inputs and all nodes
// before it.
SearchSpace darts() {
  SearchSpace space;
  space.kind = SpaceKind::darts;
  space.operations = {"none",         "max_pool_3x3", "avg_pool_3x3", "skip_connect",
                      "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"};
  space.nodes = 4;
  space.alpha = {{"normal", 14, 0}, {"reduce", 14, 0}};
  return space;
}

// Zela, Siems and Hutter, "NAS-Bench-1Shot1", ICLR 2020, section 3 and table 1.
SearchSpace nasbench1shot1(std::vector<int64_t> parents) {
  SearchSpace space;
  space.kind = SpaceKind::nasbench1shot1;
  space.operations = {"maxpool3x3", "conv3x3-bn-relu", "conv1x1-bn-relu"};
  space.nodes = static_cast<int64_t>(parents.size()) - 1;
  space.alpha = {{"operations", space.nodes, 0}, {"output", 1, space.nodes + 1}};
  for (int64_t node = 1; node <= space.nodes; ++node) {
    const int64_t candidates = node;  // the cell's input and the nodes before this one
    if (parents[static_cast<size_t>(node) - 1] < candidates) {
      space.alpha.push_back({fmt::format("parents-{}", node), 1, candidates});
    }
  }
  space.parents = std::move(parents);
  return space;
}

SearchSpace whole_space(std::string_view name) {
  if (name == "nasbench201") return nasbench201();
  if (name == "nasbench1shot1-1") return nasbench1shot1({1, 2, 2, 2, 2});
  if (name == "nasbench1shot1-2") return nasbench1shot1({1, 1, 2, 2, 3});
  if (name == "nasbench1shot1-3") return nasbench1shot1({1, 1, 1, 2, 2, 2});
  if (name == "darts") return darts();
  refuse_unknown("search space", name, space_names());
}

std::vector<std::string> narrowed(const SearchSpace& space, const std::vector<std::string>& wanted) {
  if (wanted.empty()) return space.operations;
  for (const std::string& operation : wanted) {
    if (std::find(space.operations.begin(), space.operations.end(), operation) == space.operations.end()) {
      throw std::invalid_argument(fmt::format("operation '{}' is not in search space {}: choose from {}",
                                              operation, space.name, fmt::join(space.operations, ", ")));
    }
  }
  std::vector<std::string> kept;
  for (const std::string& operation : space.operations) {
    if (std::find(wanted.begin(), wanted.end(), operation) != wanted.end()) kept.push_back(operation);
  }
  if (kept.size() < 2) {
    throw std::invalid_argument(
        fmt::format("operations {}: a search among {} needs at least two different ones",
                    fmt::join(wanted, ","), fmt::join(space.operations, ", ")));
  }
  return kept;
}

}  // namespace

int64_t SearchSpace::alpha_size() const {
  int64_t size = 0;
  for (const AlphaBlock& part : alpha) size += part.rows * part.choices;
  return size;
}

bool SearchSpace::has_block(std::string_view block_name) const {
  return std::any_of(alpha.begin(), alpha.end(),
                     [&](const AlphaBlock& part) { return part.name == block_name; });
}

Tensor SearchSpace::block(const Tensor& flat, std::string_view block_name) const {
  if (!flat.defined() || flat.dim() != 1 || flat.numel() != alpha_size()) {
    throw std::invalid_argument(fmt::format("alpha of {}: must be a vector of {} entries, not {}", name,
                                            alpha_size(),
                                            flat.defined() ? fmt::format("{}", flat.sizes().vec()) : "none"));
  }
  std::vector<std::string> names;
  int64_t offset = 0;
  for (const AlphaBlock& part : alpha) {
    const int64_t size = part.rows * part.choices;
    if (part.name == block_name) return flat.narrow(0, offset, size).view({part.rows, part.choices});
    names.push_back(part.name);
    offset += size;
  }
  throw std::invalid_argument(
      fmt::format("alpha of {} has no block '{}': there are {}", name, block_name, fmt::join(names, ", ")));
}

const std::vector<std::string>& space_names() {
  static const std::vector<std::string> names = {"nasbench201", "nasbench1shot1-1", "nasbench1shot1-2",
                                                 "nasbench1shot1-3", "darts"};
  return names;
}

SearchSpace make_space(std::string_view name, const std::vector<std::string>& operations) {
  SearchSpace space = whole_space(name);
  space.name = name;
  space.operations = narrowed(space, operations);
  for (AlphaBlock& part : space.alpha) {
    if (part.choices == 0) part.choices = static_cast<int64_t>(space.operations.size());
  }
  return space;
}

std::string input_shares_name(std::string_view cell, int64_t node) {
  return fmt::format("{}-inputs-{}", cell, node);
}

SearchSpace with_input_shares(SearchSpace space) {
  if (space.kind == SpaceKind::nasbench1shot1) return space;
  const int64_t cell_inputs = space.kind == SpaceKind::darts ? 2 : 1;
  const std::vector<AlphaBlock> cells = space.alpha;
  for (const AlphaBlock& cell : cells) {
    for (int64_t node = 1; node <= space.nodes; ++node) {
      const int64_t inputs = node - 1 + cell_inputs;
      if (inputs > 1) space.alpha.push_back({input_shares_name(cell.name, node), 1, inputs, /*shares=*/true});
    }
  }
  return space;
}

Tensor initial_alpha(const SearchSpace& space, uint64_t seed, const at::TensorOptions& options) {
  return Random(named_seed(seed, "alpha")).normal({space.alpha_size()}, options) * initial_scale;
}

Tensor mixture_weights(const SearchSpace& space, const Tensor& alpha) {
  std::vector<Tensor> parts;
  for (const AlphaBlock& part : space.alpha) {
    parts.push_back(at::softmax(space.block(alpha, part.name), 1).reshape({-1}));
  }
  return at::cat(parts);
}

}  // namespace bilevel::nas
