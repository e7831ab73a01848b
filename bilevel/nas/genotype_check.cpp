// Whether a genotype belongs to a space, and what it is made of.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "bilevel/data/npy_header.h"
#include "bilevel/nas/genotype.h"

namespace bilevel::nas {
namespace {

class Checker {
 public:
  Checker(const SearchSpace& space, const Genotype& genotype) : space_(space), genotype_(genotype) {}

  void check() {
    if (genotype_.space != space_.name) {
      fail("genotype", fmt::format("space {}", space_.name), printable(genotype_.space));
    }
    const std::vector<std::string> names = space_.kind == SpaceKind::darts
                                               ? std::vector<std::string>{"normal", "reduce"}
                                               : std::vector<std::string>{"cell"};
    if (genotype_.cells.size() != names.size()) {
      fail("genotype", fmt::format("{} cells ({})", names.size(), fmt::join(names, ", ")),
           std::to_string(genotype_.cells.size()));
    }
    for (size_t i = 0; i < names.size(); ++i) check_cell(genotype_.cells[i], names[i]);
  }

 private:
  bool node_operations() const { return space_.kind == SpaceKind::nasbench1shot1; }

  void check_cell(const CellGenotype& cell, const std::string& name) const {
    if (cell.name != name) fail("genotype", fmt::format("a cell '{}'", name), printable(cell.name));
    const size_t nodes = static_cast<size_t>(space_.nodes) + (node_operations() ? 1 : 0);
    if (cell.nodes.size() != nodes) {
      fail(name, fmt::format("{} nodes{}", nodes, node_operations() ? ", the output among them" : ""),
           std::to_string(cell.nodes.size()));
    }
    for (size_t i = 0; i < nodes; ++i) check_node(cell, i);
  }

  void check_node(const CellGenotype& cell, size_t index) const {
    const GenotypeNode& node = cell.nodes[index];
    const int64_t before = static_cast<int64_t>(index) + (space_.kind == SpaceKind::darts ? 2 : 1);
    const std::string where = fmt::format("{}, vertex {}", cell.name, before);
    if (!node_operations()) {
      if (!node.operation.empty()) fail(where, "operations on edges only", printable(node.operation));
    } else if (index + 1 == cell.nodes.size()) {
      if (node.operation != "output") fail(where, "'output', the last node", printable(node.operation));
    } else {
      check_operation(node.operation, where);
    }
    const int64_t count = space_.kind == SpaceKind::nasbench201 ? before
                          : node_operations()                   ? space_.parents[index]
                                                                : 2;
    if (static_cast<int64_t>(node.inputs.size()) != count) {
      fail(where, fmt::format("{} input{}", count, count == 1 ? "" : "s"),
           std::to_string(node.inputs.size()));
    }
    std::set<int64_t> seen;
    for (const GenotypeInput& input : node.inputs) {
      if (input.from < 0 || input.from >= before) {
        fail(where, fmt::format("inputs from vertices 0 to {}", before - 1), std::to_string(input.from));
      }
      if (space_.kind == SpaceKind::nasbench201 && input.from != static_cast<int64_t>(seen.size())) {
        fail(where, "one input from every vertex before, in order", std::to_string(input.from));
      }
      if (!seen.insert(input.from).second) {
        fail(where, "inputs from different vertices", fmt::format("two from {}", input.from));
      }
      if (!node_operations()) {
        check_operation(input.operation, where);
      } else if (!input.operation.empty()) {
        fail(where, "operations on nodes only", printable(input.operation));
      }
    }
  }

  void check_operation(const std::string& operation, const std::string& where) const {
    std::vector<std::string> allowed = space_.operations;
    // `none` takes part in the search of DARTS but is never what a derived cell keeps.
    if (space_.kind == SpaceKind::darts) std::erase(allowed, "none");
    if (std::find(allowed.begin(), allowed.end(), operation) == allowed.end()) {
      fail(where, fmt::format("an operation ({})", fmt::join(allowed, ", ")), printable(operation));
    }
  }

  [[noreturn]] void fail(std::string_view where, std::string_view expected, std::string_view found) const {
    throw std::invalid_argument(
        fmt::format("genotype of {}: {}: expected {}, found {}", space_.name, where, expected, found));
  }

  const SearchSpace& space_;
  const Genotype& genotype_;
};

}  // namespace

void validate_genotype(const SearchSpace& space, const Genotype& genotype) {
  Checker(space, genotype).check();
}

std::vector<double> operation_shares(const SearchSpace& space, const Genotype& genotype) {
  validate_genotype(space, genotype);
  std::vector<double> shares(space.operations.size(), 0.0);
  double total = 0;
  const auto count = [&](const std::string& operation) {
    const auto found = std::find(space.operations.begin(), space.operations.end(), operation);
    if (found == space.operations.end()) return;  // the output of 1Shot1
    shares[static_cast<size_t>(found - space.operations.begin())] += 1;
    total += 1;
  };
  for (const CellGenotype& cell : genotype.cells) {
    for (const GenotypeNode& node : cell.nodes) {
      if (space.kind == SpaceKind::nasbench1shot1) {
        count(node.operation);
      } else {
        for (const GenotypeInput& input : node.inputs) count(input.operation);
      }
    }
  }
  for (double& share : shares) share /= total;
  return shares;
}

int64_t skip_count(const Genotype& genotype) {
  int64_t count = 0;
  if (genotype.cells.empty()) return count;
  for (const GenotypeNode& node : genotype.cells.front().nodes) {
    for (const GenotypeInput& input : node.inputs) count += input.operation == "skip_connect" ? 1 : 0;
  }
  return count;
}

}  // namespace bilevel::nas
