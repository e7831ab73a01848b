// A genotype as a graphviz graph. Edges of `none` carry nothing and are left out.
#include <fmt/format.h>

#include "bilevel/nas/genotype.h"

namespace bilevel::nas {
namespace {

std::string color_of(std::string_view operation) {
  if (operation.find("conv") != std::string_view::npos) return "#cfe3f7";
  if (operation.find("pool") != std::string_view::npos) return "#fbe3c0";
  if (operation.find("skip") != std::string_view::npos) return "#dddddd";
  return "#ffffff";
}

std::string line_of(std::string_view operation) {
  if (operation.find("conv") != std::string_view::npos) return "#1f5f9f";
  if (operation.find("pool") != std::string_view::npos) return "#b06a00";
  return "#555555";
}

// `prefix` keeps the vertices of two cells apart.
std::string cell_dot(const CellGenotype& cell, SpaceKind kind, const std::string& prefix) {
  const size_t inputs = kind == SpaceKind::darts ? 2 : 1;
  std::string text;
  const auto vertex = [&](size_t number, const std::string& label, const std::string& color) {
    text += fmt::format("    {}{} [label=\"{}\", fillcolor=\"{}\"];\n", prefix, number, label, color);
  };
  for (size_t i = 0; i < inputs; ++i) {
    vertex(i, inputs > 1 ? fmt::format("input {}", i) : "input", "#d9f0d3");
  }
  for (size_t i = 0; i < cell.nodes.size(); ++i) {
    const GenotypeNode& node = cell.nodes[i];
    const bool output = kind != SpaceKind::darts && i + 1 == cell.nodes.size();
    const std::string label = output                   ? "output"
                              : node.operation.empty() ? std::to_string(inputs + i)
                                                       : fmt::format("{}: {}", inputs + i, node.operation);
    vertex(inputs + i, label, output ? "#f7d4d4" : color_of(node.operation));
    for (const GenotypeInput& input : node.inputs) {
      if (input.operation == "none") continue;
      text += fmt::format("    {}{} -> {}{}", prefix, input.from, prefix, inputs + i);
      if (!input.operation.empty()) {
        text += fmt::format(" [label=\"{}\", color=\"{}\"]", input.operation, line_of(input.operation));
      }
      text += ";\n";
    }
  }
  if (kind == SpaceKind::darts) {
    const size_t output = inputs + cell.nodes.size();
    vertex(output, "output", "#f7d4d4");
    for (size_t i = 0; i < cell.nodes.size(); ++i) {
      text += fmt::format("    {}{} -> {}{} [style=dashed];\n", prefix, inputs + i, prefix, output);
    }
  }
  return text;
}

}  // namespace

std::string genotype_dot(const Genotype& genotype) {
  const SearchSpace space = make_space(genotype.space);
  validate_genotype(space, genotype);
  std::string text =
      "digraph genotype {\n"
      "  rankdir=LR;\n"
      "  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=11];\n"
      "  edge [fontname=\"Helvetica\", fontsize=9];\n";
  for (const CellGenotype& cell : genotype.cells) {
    text += fmt::format("  subgraph cluster_{} {{\n", cell.name);
    text += fmt::format("    label=\"{}\"; fontname=\"Helvetica\"; color=\"#bbbbbb\";\n",
                        genotype.cells.size() > 1 ? cell.name : genotype.space);
    text += cell_dot(cell, space.kind, cell.name) + "  }\n";
  }
  return text + "}\n";
}

}  // namespace bilevel::nas
