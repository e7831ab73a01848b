#include "reproduce/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "bilevel/data/write_file.h"
#include "bilevel/report/html.h"
#include "bilevel/report/plot.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {
namespace {

constexpr int panel_width = 440, panel_height = 250, title_height = 24, legend_height = 20, legend_left = 16,
              margin = 8;

// The picture as a part of another: without the XML line, moved, and with ids of its own.
std::string nested(std::string svg, size_t number, int x, int y) {
  svg.erase(0, svg.find("<svg"));
  const auto replace_all = [&svg](const std::string& from, const std::string& to) {
    for (size_t at = svg.find(from); at != std::string::npos; at = svg.find(from, at + to.size())) {
      svg.replace(at, from.size(), to);
    }
  };
  for (const char* before : {"id='", "id=\"", "href='#"}) {
    replace_all(before, fmt::format("{}p{}-", before, number));
  }
  svg.replace(0, 4, fmt::format("<svg x=\"{}\" y=\"{}\"", x, y));
  return svg;
}

CurvePlot plot_of(const Panel& panel) {
  CurvePlot plot;
  plot.x_label = panel.x_label;
  plot.logarithmic = panel.logarithmic;
  for (size_t i = 0; i < panel.curves.size(); ++i) {
    const MeanCurve& curve = panel.curves[i];
    plot.curves.push_back({curve.mean, i});
    Band band{.places = {}, .color = i};
    for (size_t k = 0; k < curve.deviation.size(); ++k) {
      const auto [x, mean] = curve.mean[k];
      const double spread = curve.deviation[k].second;
      band.places.push_back({x, mean - spread, mean + spread});
    }
    if (!band.places.empty()) plot.bands.push_back(std::move(band));
  }
  return plot;
}

std::string text(int x, int y, const std::string& words, bool bold = false) {
  return fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"14\"{}>{}</text>\n", x, y,
                     bold ? " font-weight=\"600\"" : "", html::escaped(words));
}

// As many as have room for the longest label. A letter of this size is at most 8 pixels wide on average.
int legend_columns_of(const std::vector<std::string>& labels, int width) {
  size_t longest = 1;
  for (const std::string& label : labels) longest = std::max(longest, label.size());
  const int entry = 26 + 8 * static_cast<int>(longest) + 12;
  return std::clamp(width / entry, 1, std::max(1, static_cast<int>(labels.size())));
}

}  // namespace

double value_at(const Points& points, double x) {
  const auto after = std::lower_bound(points.begin(), points.end(), x,
                                      [](const auto& point, double value) { return point.first < value; });
  if (after == points.begin()) return after->second;
  if (after == points.end()) return points.back().second;
  const auto before = after - 1;
  const double width = after->first - before->first;
  const double part = width > 0 ? (x - before->first) / width : 1;
  return before->second + part * (after->second - before->second);
}

MeanCurve mean_curve(const std::vector<Points>& curves, size_t places) {
  std::vector<const Points*> known;
  for (const Points& points : curves) {
    if (!points.empty()) known.push_back(&points);
  }
  if (known.empty()) return {};
  if (known.size() == 1) return {*known.front(), {}};
  double low = -INFINITY, high = INFINITY;
  for (const Points* points : known) {
    low = std::max(low, points->front().first);
    high = std::min(high, points->back().first);
  }
  MeanCurve result;
  if (!(low <= high)) return result;
  const auto count = static_cast<double>(known.size());
  for (size_t i = 0; i <= places; ++i) {
    const double x = low + (high - low) * static_cast<double>(i) / static_cast<double>(places);
    double sum = 0, squares = 0;
    for (const Points* points : known) sum += value_at(*points, x);
    const double mean = sum / count;
    for (const Points* points : known) squares += std::pow(value_at(*points, x) - mean, 2);
    result.mean.emplace_back(x, mean);
    result.deviation.emplace_back(x, std::sqrt(squares / (count - 1)));
  }
  return result;
}

std::string figure_svg(const Figure& figure) {
  std::vector<std::string> scripts;
  for (const Panel& panel : figure.panels) scripts.push_back(plot_script(plot_of(panel)));
  const std::vector<std::string> pictures = draw_plots(scripts);
  const bool wide = figure.panels.size() > 1;
  const int columns = wide ? 2 : 1;
  const auto rows = (static_cast<int>(figure.panels.size()) + columns - 1) / columns;
  const int width = columns * panel_width;
  const int legend_columns = legend_columns_of(figure.labels, width - legend_left);
  const auto legend_rows = (static_cast<int>(figure.labels.size()) + legend_columns - 1) / legend_columns;
  const int height = rows * (panel_height + title_height) + legend_rows * legend_height + 2 * margin;
  std::string body;
  for (size_t i = 0; i < pictures.size(); ++i) {
    if (pictures[i].empty()) return "";
    const int x = static_cast<int>(i) % columns * panel_width,
              y = static_cast<int>(i) / columns * (panel_height + title_height);
    body += text(x + 56, y + 17, figure.panels[i].title, true) + nested(pictures[i], i, x, y + title_height);
  }
  const int legend_top = rows * (panel_height + title_height) + margin;
  for (size_t i = 0; i < figure.labels.size(); ++i) {
    const int x = legend_left +
                  static_cast<int>(i) % legend_columns * ((width - legend_left) / legend_columns),
              y = legend_top + static_cast<int>(i) / legend_columns * legend_height + 14;
    body += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"18\" height=\"4\" fill=\"{}\"/>\n", x, y - 6,
                        curve_color(i));
    body += text(x + 26, y, figure.labels[i]);
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"{0}\" "
      "height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n"
      "<style>text{{font-family:system-ui,sans-serif;fill:#3d444d}}"
      "@media(prefers-color-scheme:dark){{text{{fill:#c9d1d9}}}}</style>\n{2}</svg>\n",
      width, height, body);
}

void save_figure(const Figure& figure, const ReproduceOptions& options, Json& notes) {
  if (options.out.empty()) return;
  if (!can_plot()) {
    notes.push_back(fmt::format("no {}.svg: {}", figure.name, plot_package()));
    return;
  }
  const std::string svg = figure_svg(figure);
  if (svg.empty()) {
    notes.push_back(fmt::format("no {}.svg: gnuplot could not draw it", figure.name));
    return;
  }
  const std::filesystem::path path = std::filesystem::path(options.out) / (figure.name + ".svg");
  write_file(path, svg);
  notes.push_back(fmt::format("drawn: {}", path.string()));
}

}  // namespace bilevel::reproduce
