#pragma once
// Cells of NAS-Bench-101 (Ying et al., ICML 2019) as labelled graphs: vertex 0 is the input, the last one the
// output, edges lead from lower to higher vertices. Tables name a cell by the MD5 of its graph, the same for
// all numberings of the vertices.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/nas/genotype.h"
#include "bilevel/nas/space.h"

namespace bilevel::nas {

inline constexpr int64_t graph101_most_vertices = 7;  // of the cells that were trained
inline constexpr int64_t graph101_most_edges = 9;

struct Graph101 {
  std::vector<std::string> operations;   // "input", those of the inner vertices, "output"
  std::vector<std::vector<bool>> edges;  // square; [x][y]: from x to y, only where x < y

  int64_t vertices() const { return static_cast<int64_t>(operations.size()); }
  int64_t edge_count() const;
  bool operator==(const Graph101&) const = default;
  // Throws std::invalid_argument: shapes, labels, edges that lead back.
  void validate() const;
};

// The operations' names in the order of their labels in the hash.
const std::vector<std::string>& graph101_operations();

// A genotype of a NAS-Bench-1Shot1 space, loose ends and all.
Graph101 graph101(const SearchSpace& space, const Genotype& genotype);
// As tables store it: bit x + y (y - 1) / 2 of `bits` is the edge x -> y; '3', '1' and 'm' in `operations`
// are conv3x3-bn-relu, conv1x1-bn-relu and maxpool3x3 of the inner vertices. Throws std::invalid_argument.
Graph101 graph101_from_bits(int64_t vertices, uint32_t bits, std::string_view operations);
uint32_t graph101_bits(const Graph101& graph);        // at most 8 vertices
std::string graph101_letters(const Graph101& graph);  // of the inner vertices

// Without the vertices that lie on no path from input to output. Throws std::invalid_argument where there is
// no such path.
Graph101 pruned(const Graph101& graph);

// The official graph hash, 32 hexadecimal digits, of the graph as it is: prune first.
std::string graph101_hash(const Graph101& graph);

}  // namespace bilevel::nas
