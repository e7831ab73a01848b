#pragma once
// Pictures of numbers, by gnuplot as a process of its own. They are SVG with a transparent ground and carry
// colours for light and for dark pages, and they are made for a width of 440 pixels, so that their letters
// can be read on a phone. Titles and legends are the page's: text that wraps.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bilevel {

bool can_plot();             // the program is here
std::string plot_package();  // what to install where it is not

// The colour of curve i; the legend that goes with a picture shows the same.
std::string curve_color(size_t i);

struct Curve {
  std::vector<std::pair<double, double>> points;  // points that are not finite are left out
  size_t color = 0;
};

// The room between two curves, pale in the colour of curve `color`.
struct Band {
  struct Place {
    double x = 0, low = 0, high = 0;
  };
  std::vector<Place> places;
  size_t color = 0;
};

struct CurvePlot {
  std::vector<Band> bands = {};  // below the curves
  std::vector<Curve> curves;
  std::string x_label;
  bool logarithmic = false;  // y; what is not positive is left out
  bool whole = false;        // x counts something
};

// Counts of values in equal bins, the parts of a bin on top of each other.
struct BarPlot {
  std::vector<std::vector<double>> parts;  // one height per bar each
  double low = 0, high = 1;                // the left end of the first bar, the right end of the last
  std::string x_label, y_label;
};

// values[row][column], rows from the top.
struct HeatMap {
  std::vector<std::vector<double>> values;  // not finite: left free
  std::vector<std::string> row_names, column_names;
  std::string x_label;
  double low = 0, high = 1;
  bool square = false;
};
// Of a share from 0 to 1, as #rrggbb: dark and blue to light and yellow, monotone in lightness (viridis).
std::string heat_color(double share);

// The lines that draw it.
std::string plot_script(const CurvePlot& plot);
std::string plot_script(const BarPlot& plot);
std::string plot_script(const HeatMap& plot);

// The SVG of each script, by as few processes as can be; empty where gnuplot could not draw it.
std::vector<std::string> draw_plots(const std::vector<std::string>& scripts);

// With colours for dark pages beside those that are there; for graphviz's pictures, too.
std::string with_dark_colors(std::string svg);

}  // namespace bilevel
