// The cells of a genotype on a page, by graphviz.

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/nas/genotype.h"
#include "bilevel/report/html.h"
#include "bilevel/report/job_parts.h"
#include "bilevel/report/picture.h"
#include "bilevel/report/plot.h"

namespace bilevel {
namespace {

using html::escaped;

// A graph for each cell: side by side they would be too small on a phone.
std::vector<std::pair<std::string, std::string>> cell_graphs(const nas::Genotype& genotype) {
  const std::string all = nas::genotype_dot(genotype), begin = "  subgraph cluster_";
  std::vector<std::pair<std::string, std::string>> graphs;
  const size_t first = all.find(begin);
  size_t from = first;
  for (size_t i = 0; i < genotype.cells.size() && from != std::string::npos; ++i) {
    const size_t next = all.find(begin, from + 1);
    const bool last = next == std::string::npos;
    graphs.emplace_back(
        genotype.cells[i].name,
        all.substr(0, first) + all.substr(from, last ? next : next - from) + (last ? "" : "}\n"));
    from = next;
  }
  return graphs;
}

// From left to right where there is room, from top to bottom on a phone.
std::string upright(std::string graph) {
  const size_t at = graph.find("rankdir=LR");
  if (at != std::string::npos) graph.replace(at, 10, "rankdir=TB");
  return graph;
}

// Without the frame around the cell: the page has its own.
std::string cell_picture(const std::string& graph) {
  constexpr std::string_view style = "<style>";
  std::string svg = with_dark_colors(picture_of(graph, "svg"));
  if (const size_t at = svg.find(style); at != std::string::npos) {
    svg.insert(at + style.size(), ".cluster{display:none}");
  }
  return svg;
}

}  // namespace

std::string cells_html(const std::string& space_name, const std::string& genotype) {
  try {
    const nas::SearchSpace space = nas::make_space(space_name);
    const nas::Genotype parsed = genotype.find('{') == std::string::npos
                                     ? nas::parse_genotype(space, genotype)
                                     : nas::genotype_from_json(space, genotype);
    const std::string text = nas::genotype_text(parsed);
    std::string pictures;
    if (!can_draw()) {
      pictures =
          html::note("No picture of the cell: graphviz is not installed (Debian: apt-get install graphviz).");
    } else {
      for (const auto& [name, graph] : cell_graphs(parsed)) {
        const std::string title = parsed.cells.size() > 1 ? "The " + name + " cell" : "The cell";
        pictures += fmt::format(
            "{}<div class=\"scroll\" tabindex=\"0\"><picture><source media=\"(max-width: 600px)\" "
            "srcset=\"{}\">{}</picture></div>\n",
            parsed.cells.size() > 1 ? fmt::format("<h3>{}</h3>\n", escaped(title)) : "",
            html::data_address("image/svg+xml", cell_picture(upright(graph))),
            html::image("image/svg+xml", cell_picture(graph), title + " as a graph: " + text));
      }
    }
    return fmt::format("<figure class=\"card wide\">{}<figcaption><code>{}</code></figcaption></figure>\n",
                       pictures, escaped(text));
  } catch (const std::exception& error) {
    return html::note(fmt::format("The genotype cannot be drawn: {}", error.what()));
  }
}

}  // namespace bilevel
