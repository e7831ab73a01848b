// The text forms of genotypes. What is read here was typed or comes from a file, so the reader knows how many
// nodes, edges and characters there may be before it looks for them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/data/line_reader.h"
#include "bilevel/data/npy_header.h"
#include "bilevel/nas/genotype.h"

namespace bilevel::nas {
namespace {

constexpr int64_t darts_inputs = 2;  // of a cell, and kept by each of its nodes

class Parser {
 public:
  Parser(const SearchSpace& space, std::string_view text) : space_(space), text_(text) {}

  Genotype parse() {
    Genotype genotype{space_.name, {}};
    switch (space_.kind) {
      case SpaceKind::nasbench201:
        genotype.cells.push_back(read_edges());
        break;
      case SpaceKind::nasbench1shot1:
        genotype.cells.push_back(read_nodes());
        break;
      case SpaceKind::darts:
        genotype.cells = accept("Genotype") ? read_python() : read_pairs();
        break;
    }
    skip_space();
    if (position_ < text_.size()) fail("the end of the genotype");
    validate_genotype(space_, genotype);
    return genotype;
  }

 private:
  // |op~0|+|op~0|op~1|+|op~0|op~1|op~2|
  CellGenotype read_edges() {
    CellGenotype cell{"cell", {}};
    for (int64_t node = 1; node <= space_.nodes; ++node) {
      if (node > 1) expect("+");
      expect("|");
      GenotypeNode& read = cell.nodes.emplace_back();
      for (int64_t from = 0; from < node; ++from) {
        const std::string operation = read_operation();
        expect(fmt::format("~{}", from));
        expect("|");
        read.inputs.push_back({from, operation});
      }
    }
    return cell;
  }

  // conv3x3-bn-relu(0) maxpool3x3(0,1) ... output(2,5)
  CellGenotype read_nodes() {
    CellGenotype cell{"cell", {}};
    for (int64_t node = 1; node <= space_.nodes + 1; ++node) {
      GenotypeNode& read = cell.nodes.emplace_back();
      if (node <= space_.nodes) {
        read.operation = read_operation();
      } else {
        expect("output");
        read.operation = "output";
      }
      expect("(");
      const int64_t parents = space_.parents[static_cast<size_t>(node) - 1];
      for (int64_t i = 0; i < parents; ++i) {
        if (i > 0) expect(",");
        read.inputs.push_back({read_vertex(node), ""});
      }
      expect(")");
      std::sort(read.inputs.begin(), read.inputs.end(),
                [](const auto& a, const auto& b) { return a.from < b.from; });
    }
    return cell;
  }

  // normal: (op,0)(op,1) ... reduce: (op,0)(op,1) ...
  std::vector<CellGenotype> read_pairs() {
    std::vector<CellGenotype> cells;
    for (const char* name : {"normal", "reduce"}) {
      expect(name);
      expect(":");
      CellGenotype& cell = cells.emplace_back(CellGenotype{name, {}});
      for (int64_t node = 0; node < space_.nodes; ++node) {
        GenotypeNode& read = cell.nodes.emplace_back();
        for (int64_t i = 0; i < darts_inputs; ++i) read.inputs.push_back(read_pair(node, false));
      }
    }
    return cells;
  }

  // (normal=[('op', 0), ...], normal_concat=range(2, 6), reduce=[...], reduce_concat=range(2, 6))
  std::vector<CellGenotype> read_python() {
    std::vector<CellGenotype> cells;
    expect("(");
    for (const char* name : {"normal", "reduce"}) {
      if (!cells.empty()) expect(",");
      expect(name);
      expect("=");
      expect("[");
      CellGenotype& cell = cells.emplace_back(CellGenotype{name, {}});
      for (int64_t node = 0; node < space_.nodes; ++node) {
        GenotypeNode& read = cell.nodes.emplace_back();
        for (int64_t i = 0; i < darts_inputs; ++i) {
          if (node > 0 || i > 0) expect(",");
          read.inputs.push_back(read_pair(node, true));
        }
      }
      expect("]");
      expect(",");
      expect(fmt::format("{}_concat", name));
      expect("=");
      read_concat();
    }
    expect(")");
    return cells;
  }

  GenotypeInput read_pair(int64_t node, bool quoted) {
    expect("(");
    if (quoted) expect("'");
    GenotypeInput input;
    input.operation = read_operation();
    if (quoted) expect("'");
    expect(",");
    input.from = read_vertex(node + darts_inputs);
    expect(")");
    return input;
  }

  // All nodes, as in every cell that the published search returns.
  void read_concat() {
    const int64_t last = darts_inputs + space_.nodes;
    if (accept("range")) {
      for (const std::string& piece : {std::string("("), std::to_string(darts_inputs), std::string(","),
                                       std::to_string(last), std::string(")")}) {
        expect(piece);
      }
      return;
    }
    expect("[");
    for (int64_t vertex = darts_inputs; vertex < last; ++vertex) {
      if (vertex > darts_inputs) expect(",");
      expect(std::to_string(vertex));
    }
    expect("]");
  }

  std::string read_operation() {
    skip_space();
    const size_t end =
        std::min(text_.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-",
                                         position_),
                 text_.size());
    const std::string_view word = text_.substr(position_, end - position_);
    if (std::find(space_.operations.begin(), space_.operations.end(), word) == space_.operations.end()) {
      fail(fmt::format("an operation ({})", fmt::join(space_.operations, ", ")));
    }
    position_ = end;
    return std::string(word);
  }

  // A vertex before `bound`.
  int64_t read_vertex(int64_t bound) {
    skip_space();
    const size_t end = std::min(text_.find_first_not_of("0123456789", position_), text_.size());
    int64_t vertex = 0;
    if (!parse_number(text_.substr(position_, end - position_), vertex) || vertex >= bound) {
      fail(fmt::format("a vertex from 0 to {}", bound - 1));
    }
    position_ = end;
    return vertex;
  }

  void skip_space() { position_ = std::min(text_.find_first_not_of(" \t\r\n", position_), text_.size()); }
  bool accept(std::string_view wanted) {
    skip_space();
    if (!text_.substr(position_).starts_with(wanted)) return false;
    position_ += wanted.size();
    return true;
  }
  void expect(std::string_view wanted) {
    if (!accept(wanted)) fail(fmt::format("'{}'", wanted));
  }
  [[noreturn]] void fail(std::string_view expected) const {
    throw std::invalid_argument(
        fmt::format("genotype of {}: position {}: expected {}, found {}", space_.name, position_, expected,
                    position_ < text_.size() ? printable(text_.substr(position_)) : "its end"));
  }

  const SearchSpace& space_;
  std::string_view text_;
  size_t position_ = 0;
};

std::string edges_text(const CellGenotype& cell) {
  std::string text;
  for (const GenotypeNode& node : cell.nodes) {
    text += text.empty() ? "|" : "+|";
    for (const GenotypeInput& input : node.inputs) text += fmt::format("{}~{}|", input.operation, input.from);
  }
  return text;
}

std::string nodes_text(const CellGenotype& cell) {
  std::string text;
  for (const GenotypeNode& node : cell.nodes) {
    std::vector<int64_t> parents;
    for (const GenotypeInput& input : node.inputs) parents.push_back(input.from);
    text += fmt::format("{}{}({})", text.empty() ? "" : " ", node.operation, fmt::join(parents, ","));
  }
  return text;
}

std::string pairs_text(const CellGenotype& cell) {
  std::string text = cell.name + ":";
  for (const GenotypeNode& node : cell.nodes) {
    text += ' ';
    for (const GenotypeInput& input : node.inputs)
      text += fmt::format("({},{})", input.operation, input.from);
  }
  return text;
}

}  // namespace

Genotype parse_genotype(const SearchSpace& space, std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (text.substr(begin).starts_with('{')) return genotype_from_json(space, text);
  return Parser(space, text).parse();
}

std::string genotype_text(const Genotype& genotype) {
  const SpaceKind kind = make_space(genotype.space).kind;
  std::string text;
  for (const CellGenotype& cell : genotype.cells) {
    if (!text.empty()) text += ' ';
    text += kind == SpaceKind::nasbench201      ? edges_text(cell)
            : kind == SpaceKind::nasbench1shot1 ? nodes_text(cell)
                                                : pairs_text(cell);
  }
  return text;
}

}  // namespace bilevel::nas
