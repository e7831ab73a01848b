#include "bilevel/nas/graph101.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/data/md5.h"
#include "bilevel/data/npy_header.h"

namespace bilevel::nas {
namespace {

constexpr int input_label = -1;
constexpr int output_label = -2;
constexpr int64_t most_bit_vertices = 8;     // 28 pairs fit in 32 bits
constexpr std::string_view letters = "31m";  // in the order of graph101_operations()

Graph101 without_edges(size_t vertices) {
  return {std::vector<std::string>(vertices), {vertices, std::vector<bool>(vertices, false)}};
}

size_t label_of(const std::string& operation) {
  const auto& names = graph101_operations();
  const auto found = std::find(names.begin(), names.end(), operation);
  if (found == names.end()) {
    throw std::invalid_argument(fmt::format("NAS-Bench-101 graph: operation {} is unknown: choose from {}",
                                            printable(operation), fmt::join(names, ", ")));
  }
  return static_cast<size_t>(found - names.begin());
}

// The sorted hashes of some vertices, one after the other.
std::string joined(std::vector<std::string> hashes) {
  std::sort(hashes.begin(), hashes.end());
  return fmt::format("{}", fmt::join(hashes, ""));
}

}  // namespace

int64_t Graph101::edge_count() const {
  int64_t count = 0;
  for (const std::vector<bool>& row : edges) count += std::count(row.begin(), row.end(), true);
  return count;
}

void Graph101::validate() const {
  const size_t n = operations.size();
  if (n < 2 || operations.front() != "input" || operations.back() != "output") {
    throw std::invalid_argument("NAS-Bench-101 graph: its first vertex must be input, its last output");
  }
  for (size_t v = 1; v + 1 < n; ++v) (void)label_of(operations[v]);
  if (edges.size() != n) {
    throw std::invalid_argument(
        fmt::format("NAS-Bench-101 graph: {} vertices need {} rows of edges, not {}", n, n, edges.size()));
  }
  for (size_t x = 0; x < n; ++x) {
    if (edges[x].size() != n) {
      throw std::invalid_argument(
          fmt::format("NAS-Bench-101 graph: row {} of edges has {} entries, not {}", x, edges[x].size(), n));
    }
    for (size_t y = 0; y <= x; ++y) {
      if (edges[x][y]) {
        throw std::invalid_argument(
            fmt::format("NAS-Bench-101 graph: edge {} -> {} must lead to a higher vertex", x, y));
      }
    }
  }
}

const std::vector<std::string>& graph101_operations() {
  static const std::vector<std::string> names = {"conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3"};
  return names;
}

Graph101 graph101(const SearchSpace& space, const Genotype& genotype) {
  if (space.kind != SpaceKind::nasbench1shot1) {
    throw std::invalid_argument(
        fmt::format("search space {}: only cells of NAS-Bench-1Shot1 are NAS-Bench-101 graphs", space.name));
  }
  validate_genotype(space, genotype);
  const std::vector<GenotypeNode>& nodes = genotype.cells.front().nodes;
  Graph101 graph = without_edges(nodes.size() + 1);
  graph.operations.front() = "input";
  for (size_t i = 0; i < nodes.size(); ++i) {
    graph.operations[i + 1] = nodes[i].operation;
    for (const GenotypeInput& input : nodes[i].inputs) {
      graph.edges[static_cast<size_t>(input.from)][i + 1] = true;
    }
  }
  return graph;
}

Graph101 graph101_from_bits(int64_t vertices, uint32_t bits, std::string_view operations) {
  if (vertices < 2 || vertices > most_bit_vertices) {
    throw std::invalid_argument(fmt::format("vertices = {}: must be 2 to {}", vertices, most_bit_vertices));
  }
  const size_t n = static_cast<size_t>(vertices);
  if (operations.size() != n - 2) {
    throw std::invalid_argument(fmt::format("operations = {}: must be {} letters, one per inner vertex",
                                            printable(operations), vertices - 2));
  }
  if (bits >> (n * (n - 1) / 2) != 0) {
    throw std::invalid_argument(
        fmt::format("edges {:x} must fit in {} bits, as there are {} vertices", bits, n * (n - 1) / 2, n));
  }
  Graph101 graph = without_edges(n);
  graph.operations.front() = "input";
  graph.operations.back() = "output";
  for (size_t v = 1; v + 1 < n; ++v) {
    const size_t label = letters.find(operations[v - 1]);
    if (label == std::string_view::npos) {
      throw std::invalid_argument(
          fmt::format("operations = {}: must be of the letters 3, 1 and m", printable(operations)));
    }
    graph.operations[v] = graph101_operations()[label];
  }
  for (size_t y = 1; y < n; ++y) {
    for (size_t x = 0; x < y; ++x) graph.edges[x][y] = (bits >> (x + y * (y - 1) / 2) & 1U) != 0;
  }
  return graph;
}

uint32_t graph101_bits(const Graph101& graph) {
  if (graph.vertices() > most_bit_vertices) {
    throw std::invalid_argument(
        fmt::format("vertices = {}: must be at most {}", graph.vertices(), most_bit_vertices));
  }
  uint32_t bits = 0;
  for (size_t y = 1; y < graph.operations.size(); ++y) {
    for (size_t x = 0; x < y; ++x) {
      if (graph.edges[x][y]) bits |= uint32_t{1} << (x + y * (y - 1) / 2);
    }
  }
  return bits;
}

std::string graph101_letters(const Graph101& graph) {
  std::string text;
  for (size_t v = 1; v + 1 < graph.operations.size(); ++v) text += letters[label_of(graph.operations[v])];
  return text;
}

Graph101 pruned(const Graph101& graph) {
  graph.validate();
  const size_t n = graph.operations.size();
  std::vector<bool> after_input(n, false), before_output(n, false);
  after_input.front() = true;
  before_output.back() = true;
  for (size_t y = 1; y < n; ++y) {
    for (size_t x = 0; x < y; ++x) {
      if (after_input[x] && graph.edges[x][y]) after_input[y] = true;
    }
  }
  for (size_t x = n - 1; x-- > 0;) {
    for (size_t y = x + 1; y < n; ++y) {
      if (before_output[y] && graph.edges[x][y]) before_output[x] = true;
    }
  }
  if (!after_input.back()) {
    throw std::invalid_argument("NAS-Bench-101 graph: no path leads from the input to the output");
  }
  std::vector<size_t> kept;
  for (size_t v = 0; v < n; ++v) {
    if (after_input[v] && before_output[v]) kept.push_back(v);
  }
  Graph101 result = without_edges(kept.size());
  for (size_t x = 0; x < kept.size(); ++x) {
    result.operations[x] = graph.operations[kept[x]];
    for (size_t y = x + 1; y < kept.size(); ++y) result.edges[x][y] = graph.edges[kept[x]][kept[y]];
  }
  return result;
}

// graph_util.hash_module of the official code, with Python's way of writing tuples and lists: a vertex begins
// as the MD5 of "(out-degree, in-degree, label)" and takes in its neighbours' hashes as often as there are
// vertices.
std::string graph101_hash(const Graph101& graph) {
  graph.validate();
  const size_t n = graph.operations.size();
  std::vector<std::string> hashes;
  for (size_t v = 0; v < n; ++v) {
    int in = 0;
    for (size_t x = 0; x < n; ++x) in += graph.edges[x][v] ? 1 : 0;
    const auto out = std::count(graph.edges[v].begin(), graph.edges[v].end(), true);
    const int label = v == 0       ? input_label
                      : v + 1 == n ? output_label
                                   : static_cast<int>(label_of(graph.operations[v]));
    hashes.push_back(md5_hex(fmt::format("({}, {}, {})", out, in, label)));
  }
  for (size_t round = 0; round < n; ++round) {
    std::vector<std::string> next;
    for (size_t v = 0; v < n; ++v) {
      std::vector<std::string> in, out;
      for (size_t w = 0; w < n; ++w) {
        if (graph.edges[w][v]) in.push_back(hashes[w]);
        if (graph.edges[v][w]) out.push_back(hashes[w]);
      }
      next.push_back(md5_hex(joined(std::move(in)) + '|' + joined(std::move(out)) + '|' + hashes[v]));
    }
    hashes = std::move(next);
  }
  std::sort(hashes.begin(), hashes.end());
  return md5_hex(fmt::format("['{}']", fmt::join(hashes, "', '")));
}

}  // namespace bilevel::nas
