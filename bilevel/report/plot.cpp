#include "bilevel/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/process.h"
#include "bilevel/data/temporary_folder.h"
#include "bilevel/data/write_file.h"

namespace bilevel {
namespace {

constexpr int width = 440;
constexpr size_t most_points = 400;  // of a curve: more than a picture has pixels to show
constexpr int64_t largest_picture = int64_t{1} << 26;
// Colours that the style below replaces where the page is dark.
constexpr std::string_view text_color = "#3d444d", line_color = "#8c959f", grid_color = "#d0d7de";

// Legible on white and on black, and apart for eyes that do not tell red from green by their lightness.
constexpr std::array<std::string_view, 9> colors{"#3b76d6", "#e07b1a", "#1f9d6b", "#b254c9", "#d9484c",
                                                 "#12a0b5", "#9a7400", "#d6458f", "#7d8590"};

// In single quotes gnuplot reads no commands, no macros and no escapes; a quote is written twice.
std::string gnuplot_text(std::string_view text) {
  constexpr size_t longest = 60;
  std::string out = "'";
  for (const char c : text.substr(0, longest)) {
    if (c == '\'') out += '\'';
    out += static_cast<unsigned char>(c) < 0x20 || c == '`' ? ' ' : c;
  }
  // A letter of several bytes that was cut in two would make the whole picture invalid.
  if (text.size() > longest) {
    while ((static_cast<unsigned char>(out.back()) & 0xC0U) == 0x80U) out.pop_back();
    if ((static_cast<unsigned char>(out.back()) & 0x80U) != 0) out.pop_back();
    out += "...";
  }
  return out + "'";
}

bool drawable(double value) { return std::isfinite(value) && std::abs(value) < 1e200; }

std::string begin(int height) {
  return fmt::format(
      "reset\n"
      "set encoding utf8\n"
      "set terminal svg size {0},{1} fixed font 'Helvetica,14' noenhanced linewidth 1\n"
      "set border 3 lc rgb '{3}' lw 1\n"
      "set tics nomirror out scale 0.5 textcolor rgb '{2}'\n"
      "set grid ytics lc rgb '{4}' lt 1 lw 0.6, lt 1 lw 0.3\n"
      "set xlabel textcolor rgb '{2}' offset 0,0.3\n"
      "set ylabel textcolor rgb '{2}'\n"
      "set tmargin 0.8\nset rmargin 2.5\n"
      "set format y '%.4g'\nset format x '%.5g'\n"
      "unset key\n",
      width, height, text_color, line_color, grid_color);
}

// Every k-th point, the first and the last among them.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points) {
  if (points.size() <= most_points) return points;
  std::vector<std::pair<double, double>> out;
  for (size_t i = 0; i < most_points; ++i) out.push_back(points[i * (points.size() - 1) / (most_points - 1)]);
  return out;
}

void set_range(std::string& script, const char* axis, double low, double high, bool logarithmic) {
  if (!(low <= high)) return;
  if (low == high) {
    const double half = low == 0 ? 1 : std::abs(low) / (logarithmic ? 2 : 10);
    low -= half;
    high += half;
  } else if (*axis == 'y' && !logarithmic) {
    const double room = (high - low) / 20;
    low = low >= 0 && low < room ? 0 : low - room;
    high += room;
  } else if (*axis == 'y') {
    low /= 1.2;
    high *= 1.2;
  }
  script += fmt::format("set {}range [{:.9g}:{:.9g}]\n", axis, low, high);
}

}  // namespace

bool can_plot() { return run_process({"gnuplot", "--version"}, ".").found; }

std::string plot_package() { return "gnuplot is not installed (Debian: apt-get install gnuplot-nox)"; }

std::string curve_color(size_t i) { return std::string(colors.at(i % colors.size())); }

std::string plot_script(const CurvePlot& plot) {
  std::string script = begin(250), blocks, lines;
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  const auto make_room = [&](double x, double y) {
    x_low = std::min(x_low, x);
    x_high = std::max(x_high, x);
    y_low = std::min(y_low, y);
    y_high = std::max(y_high, y);
  };
  for (size_t i = 0; i < plot.bands.size(); ++i) {
    std::string places;
    const size_t every = 1 + plot.bands[i].places.size() / most_points;
    for (size_t k = 0; k < plot.bands[i].places.size(); ++k) {
      const auto& [x, low, high] = plot.bands[i].places[k];
      if (k % every != 0 && k + 1 < plot.bands[i].places.size()) continue;
      if (!drawable(x) || !drawable(low) || !drawable(high) || (plot.logarithmic && low <= 0)) continue;
      places += fmt::format("{:.9g} {:.9g} {:.9g}\n", x, low, high);
      make_room(x, low);
      make_room(x, high);
    }
    if (places.empty()) continue;
    blocks += fmt::format("$band{} << EOD\n{}EOD\n", i, places);
    lines +=
        fmt::format("{}$band{} using 1:2:3 with filledcurves fs transparent solid 0.2 noborder lc rgb '{}'",
                    lines.empty() ? "plot " : ", ", i, curve_color(plot.bands[i].color));
  }
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    std::vector<std::pair<double, double>> points;
    for (const auto& [x, y] : plot.curves[i].points) {
      if (drawable(x) && drawable(y) && (!plot.logarithmic || y > 0)) points.emplace_back(x, y);
    }
    if (points.empty()) continue;
    blocks += fmt::format("$curve{} << EOD\n", i);
    points = thinned(points);
    for (const auto& [x, y] : points) {
      blocks += fmt::format("{:.9g} {:.9g}\n", x, y);
      make_room(x, y);
    }
    blocks += "EOD\n";
    // A second dash tells curves apart where there are more of them than colours.
    const size_t color = plot.curves[i].color;
    lines +=
        fmt::format("{}$curve{} using 1:2 with {} lc rgb '{}' lw 2 dt {}", lines.empty() ? "plot " : ", ", i,
                    points.size() <= 30 ? "linespoints pt 7 ps 0.35" : "lines", curve_color(color),
                    1 + color / colors.size() % 4);
  }
  if (lines.empty()) return "";
  set_range(script, "x", x_low, x_high, false);
  set_range(script, "y", y_low, y_high, plot.logarithmic);
  if (plot.logarithmic) {
    script += "set logscale y\nset format y '%.0e'\n";
    if (y_high / y_low < 1000) script += "set format y '%.3g'\n";
  }
  // Between two steps there is nothing.
  if (plot.whole && x_high - x_low <= 10) script += "set xtics 1\n";
  script += fmt::format("set xlabel {}\n", gnuplot_text(plot.x_label));
  return script + blocks + lines + "\n";
}

std::string plot_script(const BarPlot& plot) {
  std::string script = begin(250), blocks, lines;
  const size_t bars = plot.parts.empty() ? 0 : plot.parts.front().size();
  if (bars == 0 || !drawable(plot.low) || !drawable(plot.high) || !(plot.low < plot.high)) return "";
  const double step = (plot.high - plot.low) / static_cast<double>(bars);
  std::vector<double> below(bars, 0);
  for (size_t part = 0; part < plot.parts.size(); ++part) {
    blocks += fmt::format("$part{} << EOD\n", part);
    for (size_t i = 0; i < bars; ++i) {
      const double left = plot.low + step * static_cast<double>(i), height = plot.parts[part][i];
      if (drawable(height) && height != 0) {
        blocks +=
            fmt::format("{:.9g} {:.9g} {:.9g} {:.9g} {:.9g} {:.9g}\n", left + step / 2, below[i] + height / 2,
                        left + step * 0.06, left + step * 0.94, below[i], below[i] + height);
        below[i] += height;
      }
    }
    blocks += fmt::format("NaN NaN NaN NaN NaN NaN\nEOD\n");
    lines += fmt::format("{}$part{} using 1:2:3:4:5:6 with boxxyerror fs solid noborder lc rgb '{}'",
                         lines.empty() ? "plot " : ", ", part, curve_color(part));
  }
  script += fmt::format("set xrange [{:.9g}:{:.9g}]\n", plot.low, plot.high);
  script += fmt::format("set xlabel {}\nset ylabel {} offset 1,0\n", gnuplot_text(plot.x_label),
                        gnuplot_text(plot.y_label));
  return script + blocks + lines + "\n";
}

std::string heat_color(double share) {
  // Seven points of viridis, straight lines between them.
  constexpr std::array<std::array<double, 3>, 7> points{{{68, 1, 84},
                                                         {70, 50, 127},
                                                         {54, 92, 141},
                                                         {39, 127, 142},
                                                         {31, 161, 135},
                                                         {119, 209, 83},
                                                         {253, 231, 37}}};
  const double at = std::clamp(std::isfinite(share) ? share : 0, 0.0, 1.0) * (points.size() - 1);
  const size_t left = std::min(static_cast<size_t>(at), points.size() - 2);
  const double part = at - static_cast<double>(left);
  const auto channel = [&](size_t i) {
    return static_cast<int>(std::lround(points[left][i] * (1 - part) + points[left + 1][i] * part));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(1), channel(2));
}

std::string plot_script(const HeatMap& plot) {
  const size_t rows = plot.values.size();
  const size_t columns = rows == 0 ? 0 : plot.values.front().size();
  if (columns == 0) return "";
  const int height = plot.square ? width : 56 + static_cast<int>(rows) * 22;
  std::string script = begin(height) + "unset grid\nset border 0\nset tics scale 0\n";
  std::string block = "$cells << EOD\n";
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < std::min(columns, plot.values[r].size()); ++c) {
      const double value = plot.values[r][c];
      if (!drawable(value)) continue;
      const std::string color =
          heat_color(plot.high > plot.low ? (value - plot.low) / (plot.high - plot.low) : 0);
      const auto x = static_cast<double>(c), y = static_cast<double>(rows - 1 - r);
      block += fmt::format("{} {} {} {} {} {} {}\n", x, y, x - 0.48, x + 0.48, y - 0.46, y + 0.46,
                           std::stoi(color.substr(1), nullptr, 16));
    }
  }
  block += "NaN NaN NaN NaN NaN NaN 0\nEOD\n";
  const auto tics = [&](const char* axis, const std::vector<std::string>& names, size_t count, bool down,
                        size_t most) {
    const size_t every = (std::min(names.size(), count) + most - 1) / most;
    std::string list;
    for (size_t i = 0; i < std::min(names.size(), count); i += every) {
      list +=
          fmt::format("{}{} {}", list.empty() ? "" : ", ", gnuplot_text(names[i]), down ? count - 1 - i : i);
    }
    script += fmt::format("set {}tics ({})\n", axis, list);
  };
  tics("y", plot.row_names, rows, true, 64);
  size_t longest = 1;
  for (const std::string& name : plot.column_names) longest = std::max(longest, name.size());
  tics("x", plot.column_names, columns, false, longest <= 3 ? 16 : 40);
  if (longest > 3) script += "set xtics rotate by -60 left\n";
  if (rows > 24) script += "set tics font 'Helvetica,8'\n";
  script += fmt::format("set xrange [-0.5:{}]\nset yrange [-0.5:{}]\n", static_cast<double>(columns) - 0.5,
                        static_cast<double>(rows) - 0.5);
  script += fmt::format("set xlabel {}\n", gnuplot_text(plot.x_label));
  return script + block +
         "plot $cells using 1:2:3:4:5:6:7 with boxxyerror fs solid noborder lc rgb variable\n";
}

std::vector<std::string> draw_plots(const std::vector<std::string>& scripts) {
  std::vector<std::string> pictures(scripts.size());
  const TemporaryFolder folder("bilevel-plot");
  // gnuplot ends at the first line that it cannot read: that picture is lost, the rest go on.
  for (size_t first = 0; first < scripts.size();) {
    std::string all;
    for (size_t i = first; i < scripts.size(); ++i) {
      if (scripts[i].empty()) continue;
      // The terminal comes before the output that belongs to it, and a closed output is a whole file.
      const size_t terminal = scripts[i].find("set border");
      all += scripts[i].substr(0, terminal) + fmt::format("set output '{}.svg'\n", i) +
             scripts[i].substr(terminal) + "unset output\n";
    }
    write_file(folder.at("all.gp"), all);
    const ProcessResult result = run_process({"gnuplot", "-d", "all.gp"}, folder.path());
    size_t next = scripts.size();
    for (size_t i = first; i < scripts.size(); ++i) {
      if (scripts[i].empty()) continue;
      const std::string path = folder.at(fmt::format("{}.svg", i));
      std::string svg = std::filesystem::exists(path) ? read_file(path, largest_picture) : "";
      if (svg.find("</svg>") == std::string::npos || svg.find("gnuplot_plot_1") == std::string::npos) {
        next = i + 1;
        break;
      }
      pictures[i] = with_dark_colors(std::move(svg));
    }
    if (!result.found) break;
    first = next;
  }
  return pictures;
}

std::string with_dark_colors(std::string svg) {
  // gnuplot writes rgb(r, g, b) with blanks that depend on the digits; the classes are graphviz's.
  constexpr std::string_view style =
      "<style>text{font-family:system-ui,-apple-system,'Segoe "
      "UI',Roboto,Helvetica,Arial,sans-serif}.graph>polygon{fill:none;stroke:none}@media(prefers-color-"
      "scheme:dark){g[fill='rgb(61,68,77)'] text,.edge text,.cluster text{fill:#c9d1d9}[stroke='rgb(140, "
      "149, 159)']{stroke:#6e7681}[stroke='rgb(208, 215, 222)']{stroke:#30363d}.edge "
      "[stroke='black']{stroke:#9198a1}.edge polygon[fill='black']{fill:#9198a1}.edge "
      "[stroke='#1f5f9f']{stroke:#6cb0f5}.edge [fill='#1f5f9f']{fill:#6cb0f5}.edge "
      "[stroke='#b06a00']{stroke:#e5a84b}.edge [fill='#b06a00']{fill:#e5a84b}.edge "
      "[stroke='#555555']{stroke:#b1bac4}.edge [fill='#555555']{fill:#b1bac4}.cluster "
      "polygon{stroke:#484f58}}</style>";
  const size_t root = svg.find("<svg");
  const size_t end = root == std::string::npos ? root : svg.find('>', root);
  if (end != std::string::npos) svg.insert(end + 1, style);
  return svg;
}

}  // namespace bilevel
