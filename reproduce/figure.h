#pragma once
// A paper's figure as one SVG: panels beside each other, each with its title, and one legend for all.

#include <string>
#include <utility>
#include <vector>

#include "bilevel/run/json.h"
#include "reproduce/reproduce.h"

namespace bilevel::reproduce {

using Points = std::vector<std::pair<double, double>>;

// The mean of several curves and how far they spread, where all of them have values.
struct MeanCurve {
  Points mean;
  Points deviation;  // of the sample, n - 1, at the same x; empty of one curve
};
// On `places` equal parts of the x that all curves cover, by straight lines between their points. Curves
// without points are left out.
MeanCurve mean_curve(const std::vector<Points>& curves, size_t places = 40);

// By straight lines between the points; before the first and after the last, their values.
double value_at(const Points& points, double x);

struct Panel {
  std::string title;
  std::string x_label = {};
  bool logarithmic = false;  // y
  // One for each label of the figure, in its order; empty where the panel does not have it.
  std::vector<MeanCurve> curves = {};
};

struct Figure {
  std::string name;  // NAME.svg
  std::vector<std::string> labels = {};
  std::vector<Panel> panels = {};
};

// Empty where gnuplot is missing.
std::string figure_svg(const Figure& figure);
// Into the item's folder, where it has one; adds a line to the notes that names the file, or says why there
// is none.
void save_figure(const Figure& figure, const ReproduceOptions& options, Json& notes);

}  // namespace bilevel::reproduce
