// From the weights of the mixed operations to one architecture. Ties go to the first, so that the same
// weights give the same genotype on every machine.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "bilevel/nas/genotype.h"

namespace bilevel::nas {
namespace {

constexpr int64_t kept_inputs = 2;

using Row = std::vector<double>;

// A block of the mixture as rows of numbers.
std::vector<Row> rows_of(const SearchSpace& space, const Tensor& mixture, const std::string& name) {
  const Tensor block = space.block(mixture, name).contiguous();
  const double* data = block.data_ptr<double>();
  std::vector<Row> rows;
  for (int64_t i = 0; i < block.size(0); ++i) {
    rows.emplace_back(data + i * block.size(1), data + (i + 1) * block.size(1));
  }
  return rows;
}

size_t strongest(const Row& row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

std::vector<int64_t> by_strength(const Row& row) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  return order;
}

CellGenotype derive_edges(const SearchSpace& space, const Tensor& mixture) {
  const std::vector<Row> edges = rows_of(space, mixture, "edges");
  CellGenotype cell{"cell", {}};
  size_t edge = 0;
  for (int64_t node = 1; node <= space.nodes; ++node) {
    GenotypeNode& derived = cell.nodes.emplace_back();
    for (int64_t from = 0; from < node; ++from) {
      derived.inputs.push_back({from, space.operations[strongest(edges[edge++])]});
    }
  }
  return cell;
}

// The `count` strongest of the candidates, in the order of vertices; all of them where there is no choice.
std::vector<GenotypeInput> strongest_parents(const SearchSpace& space, const Tensor& mixture,
                                             const std::string& block, int64_t candidates, int64_t count) {
  std::vector<int64_t> parents(static_cast<size_t>(candidates));
  std::iota(parents.begin(), parents.end(), 0);
  if (count < candidates) {
    parents = by_strength(rows_of(space, mixture, block)[0]);
    parents.resize(static_cast<size_t>(count));
    std::sort(parents.begin(), parents.end());
  }
  std::vector<GenotypeInput> inputs;
  inputs.reserve(parents.size());
  for (const int64_t parent : parents) inputs.push_back({parent, ""});
  return inputs;
}

CellGenotype derive_nodes(const SearchSpace& space, const Tensor& mixture) {
  const std::vector<Row> operations = rows_of(space, mixture, "operations");
  CellGenotype cell{"cell", {}};
  for (int64_t node = 1; node <= space.nodes; ++node) {
    const size_t index = static_cast<size_t>(node) - 1;
    cell.nodes.push_back(
        {space.operations[strongest(operations[index])],
         strongest_parents(space, mixture, fmt::format("parents-{}", node), node, space.parents[index])});
  }
  cell.nodes.push_back(
      {"output", strongest_parents(space, mixture, "output", space.nodes + 1, space.parents.back())});
  return cell;
}

// An edge is as strong as its best operation that is not `none` (DARTS, section 2.4), times its share where
// nodes weigh their inputs; a node keeps its two strongest edges, the strongest first.
CellGenotype derive_pairs(const SearchSpace& space, const Tensor& mixture, const std::string& name) {
  const std::vector<Row> edges = rows_of(space, mixture, name);
  CellGenotype cell{name, {}};
  size_t first = 0;
  for (int64_t node = 0; node < space.nodes; ++node) {
    const int64_t candidates = node + kept_inputs;
    Row strengths;
    std::vector<std::string> best;
    const std::string shares = input_shares_name(name, node + 1);
    const Row share = space.has_block(shares) ? rows_of(space, mixture, shares)[0]
                                              : Row(static_cast<size_t>(candidates), 1);
    for (int64_t from = 0; from < candidates; ++from) {
      Row row = edges[first + static_cast<size_t>(from)];
      for (size_t k = 0; k < row.size(); ++k) {
        if (space.operations[k] == "none") row[k] = -std::numeric_limits<double>::infinity();
      }
      const size_t chosen = strongest(row);
      strengths.push_back(row[chosen] * share[static_cast<size_t>(from)]);
      best.push_back(space.operations[chosen]);
    }
    const std::vector<int64_t> order = by_strength(strengths);
    GenotypeNode& derived = cell.nodes.emplace_back();
    for (int64_t i = 0; i < kept_inputs; ++i) {
      const int64_t from = order[static_cast<size_t>(i)];
      derived.inputs.push_back({from, best[static_cast<size_t>(from)]});
    }
    first += static_cast<size_t>(candidates);
  }
  return cell;
}

}  // namespace

Genotype derive_genotype(const SearchSpace& space, const Tensor& mixture) {
  (void)space.block(mixture, space.alpha.front().name);  // its size, before anything is read
  const Tensor weights = mixture.detach().to(at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
  if (!at::isfinite(weights).all().item<bool>()) {
    throw std::invalid_argument(fmt::format(
        "mixture of {}: every weight must be a finite number; did the search diverge?", space.name));
  }
  Genotype genotype{space.name, {}};
  switch (space.kind) {
    case SpaceKind::nasbench201:
      genotype.cells.push_back(derive_edges(space, weights));
      break;
    case SpaceKind::nasbench1shot1:
      genotype.cells.push_back(derive_nodes(space, weights));
      break;
    case SpaceKind::darts:
      for (const AlphaBlock& block : space.alpha) {
        if (block.shares) continue;
        genotype.cells.push_back(derive_pairs(space, weights, block.name));
      }
      break;
  }
  return genotype;
}

// Uniform independent weights are exchangeable, so their argmax and their strongest parents are uniform too.
Genotype random_genotype(const SearchSpace& space, Random& random) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  return derive_genotype(space, random.uniform({space.alpha_size()}, options));
}

}  // namespace bilevel::nas
