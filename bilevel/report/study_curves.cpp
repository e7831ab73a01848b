#include "bilevel/report/study_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "bilevel/report/curves.h"
#include "bilevel/report/html.h"
#include "bilevel/report/plot.h"

namespace bilevel {
namespace {

constexpr size_t most_mean_curves = 12;

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const char* end) { return name.ends_with(end); });
}

// The order in which people ask; nothing for what is left to the curves of the single runs. What the table
// says of the validation images comes before what it says of the test images: the first may choose a method.
std::optional<int> rank_of(const Measure& m) {
  if (m.object == "benchmark") {
    if (ends_with_any(m.name, {"_valid", "valid_acc"})) return 0;
    return ends_with_any(m.name, {"_test", "test_acc"}) ? std::optional(1) : std::nullopt;
  }
  if (!m.object.empty()) return std::nullopt;
  if (is_percent(m.name)) return 2;
  if (m.name.ends_with("loss")) return 3;
  return m.name == "direction_norm" ? 4 : 5;
}

struct MeanPicture {
  std::string title, remark, description, legend, script;
};

// The first step at which some run of the group has ended already; nothing where they all end together.
std::optional<double> thins_out(const MeanCurve& curve, size_t runs) {
  for (const MeanCurve::Place& place : curve.places) {
    if (static_cast<size_t>(place.statistic.count) < runs) return place.step;
  }
  return std::nullopt;
}

std::optional<MeanPicture> picture_of_means(const std::vector<RunData>& runs, const Study& study,
                                            const Measure& measure, const std::string& axis) {
  const bool percent = is_percent(measure.name) || measure.object == "benchmark";
  std::vector<MeanCurve> curves;
  double low = INFINITY, high = -INFINITY;
  bool changes = false;
  for (const StudyGroup& group : study.groups) {
    curves.push_back(mean_curve(runs, group, measure));
    for (const MeanCurve::Place& place : curves.back().places) {
      low = std::min(low, place.statistic.low);
      high = std::max(high, place.statistic.high);
      changes = changes || place.step != curves.back().places.front().step;
    }
  }
  if (!changes || !(low < high)) return std::nullopt;
  MeanPicture picture;
  CurvePlot plot{
      .curves = {}, .x_label = axis, .logarithmic = !percent && wants_logarithm(low, high), .whole = true};
  picture.title = capital(measure.object == "benchmark" ? "the cell in the table, " + title_of(measure.name)
                                                        : title_of(measure.name));
  if (percent) picture.title += ", percent";
  if (plot.logarithmic) picture.title += " (log scale)";
  for (size_t g = 0; g < curves.size(); ++g) {
    Curve line{.points = {}, .color = g};
    Band band{.places = {}, .color = g};
    for (const auto& [step, s] : curves[g].places) {
      line.points.emplace_back(step, s.mean);
      if (s.count < 2) continue;
      // On a logarithmic scale a band that reaches zero would have no end.
      const double below = plot.logarithmic ? std::max(s.mean - s.deviation, s.low) : s.mean - s.deviation;
      band.places.push_back({step, below, s.mean + s.deviation});
    }
    if (line.points.empty()) continue;
    const StudyGroup& group = study.groups[g];
    const auto end = [&](const MeanCurve::Place& place) {
      return place.statistic.count > 1
                 ? fmt::format("{} \u00b1 {}", value_text(measure.name, place.statistic.mean),
                               value_text(measure.name, place.statistic.deviation))
                 : value_text(measure.name, place.statistic.mean);
    };
    picture.description += fmt::format("{} goes from {} to {}. ", group.label, end(curves[g].places.front()),
                                       end(curves[g].places.back()));
    if (const auto from = thins_out(curves[g], group.runs.size())) {
      picture.remark +=
          fmt::format("{}{}: fewer than {} runs from {} {} on.", picture.remark.empty() ? "" : " ",
                      group.label, group.runs.size(), axis, html::number_text(*from));
    }
    picture.legend +=
        fmt::format("<li><span class=\"swatch\" style=\"background:{}\"></span>{} (n = {})</li>",
                    curve_color(g), html::escaped(group.label), group.runs.size());
    plot.bands.push_back(std::move(band));
    plot.curves.push_back(std::move(line));
  }
  picture.script = plot_script(plot);
  return picture;
}

}  // namespace

MeanCurve mean_curve(const std::vector<RunData>& runs, const StudyGroup& group, const Measure& measure) {
  std::map<double, std::vector<double>> by_step;
  for (const size_t run : group.runs) {
    for (const auto& line : runs[run].metrics.lines) {
      const auto step = position(line, {"steps", ""});
      const auto value = value_of(line, measure);
      if (step && value) by_step[*step].push_back(*value);
    }
  }
  MeanCurve curve;
  for (const auto& [step, values] : by_step) curve.places.push_back({step, statistic_of(values)});
  return curve;
}

std::string study_curves_html(const std::vector<RunData>& runs, const Study& study) {
  if (!study.repeated()) return "";
  if (!can_plot()) return html::note("No curves of means: " + plot_package() + ".");
  std::vector<const Metrics*> counted;
  for (const StudyGroup& group : study.groups) {
    for (const size_t run : group.runs) counted.push_back(&runs[run].metrics);
  }
  const std::vector<Axis> axes = axes_of(counted);
  if (axes.empty() || axes.front().id != "steps") return html::note("The runs have recorded one step only.");
  std::vector<Measure> measures = measures_of(counted);
  std::erase_if(measures, [](const Measure& m) { return !rank_of(m); });
  std::stable_sort(measures.begin(), measures.end(),
                   [](const Measure& a, const Measure& b) { return *rank_of(a) < *rank_of(b); });
  std::vector<MeanPicture> pictures;
  std::vector<std::string> scripts;
  for (const Measure& measure : measures) {
    if (pictures.size() == most_mean_curves) break;
    if (auto picture = picture_of_means(runs, study, measure, axes.front().label)) {
      scripts.push_back(picture->script);
      pictures.push_back(std::move(*picture));
    }
  }
  if (pictures.empty()) return html::note("No number has been recorded that changes.");
  const std::vector<std::string> drawn = draw_plots(scripts);
  std::string out =
      "<p>Lines are means over the runs of a configuration, bands one standard deviation to either "
      "side.</p>\n"
      "<div class=\"grid\">\n";
  for (size_t i = 0; i < pictures.size(); ++i) {
    out += fmt::format("<figure class=\"card\"><h3>{}</h3>\n{}\n<ul class=\"legend\">{}</ul>\n{}</figure>\n",
                       html::escaped(pictures[i].title),
                       drawn[i].empty() ? html::note("This picture could not be drawn.")
                                        : html::image("image/svg+xml", drawn[i],
                                                      pictures[i].title + ". " + pictures[i].description),
                       pictures[i].legend,
                       pictures[i].remark.empty()
                           ? ""
                           : fmt::format("<figcaption>{}</figcaption>\n", html::escaped(pictures[i].remark)));
  }
  return out + "</div>\n";
}

}  // namespace bilevel
