#include "bilevel/report/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "bilevel/report/html.h"
#include "bilevel/report/plot.h"

namespace bilevel {
namespace {

using html::escaped;

constexpr size_t most_groups = 16, most_series = 12;

// Where a record stands, not what was measured there.
const std::set<std::string>& positions() {
  static const std::set<std::string> names{"step", "iteration", "epoch", "seconds", "seed", "counts"};
  return names;
}

std::optional<double> finite(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct Extent {
  double low = INFINITY, high = -INFINITY;
  size_t count = 0;
};
Extent range_of(const std::vector<const Metrics*>& runs, const Measure& measure) {
  Extent range;
  for (const Metrics* metrics : runs) {
    for (const Json& line : metrics->lines) {
      if (const auto value = value_of(line, measure)) {
        range.low = std::min(range.low, *value);
        range.high = std::max(range.high, *value);
        ++range.count;
      }
    }
  }
  return range;
}

struct Picture {
  std::string title, remark, description;
  std::vector<std::pair<std::string, size_t>> legend;  // name and colour
  std::vector<std::string> scripts;                    // one for each axis
};

std::string legend_html(const Picture& picture) {
  if (picture.legend.size() < 2) return "";
  std::string out = "<ul class=\"legend\">";
  for (const auto& [name, color] : picture.legend) {
    out += fmt::format("<li><span class=\"swatch\" style=\"background:{}\"></span>{}</li>",
                       curve_color(color), escaped(name));
  }
  return out + "</ul>\n";
}

std::string section(const std::vector<Axis>& axes, const std::vector<Picture>& pictures,
                    const std::string& remark) {
  if (!can_plot()) return html::note("No curves: " + plot_package() + ".");
  if (pictures.empty() || axes.empty()) return html::note("No number has been recorded that changes.");
  std::vector<std::string> scripts;
  for (const Picture& picture : pictures) {
    scripts.insert(scripts.end(), picture.scripts.begin(), picture.scripts.end());
  }
  const std::vector<std::string> drawn = draw_plots(scripts);
  std::string out = "<div class=\"switch\">\n";
  if (axes.size() > 1) out += "<span class=\"against\" id=\"against\">Against</span>\n";
  for (size_t a = 0; a < axes.size() && axes.size() > 1; ++a) {
    out += fmt::format(
        "<input type=\"radio\" name=\"axis\" id=\"axis-{0}\"{1}><label for=\"axis-{0}\">{2}</label>\n",
        axes[a].id, a == 0 ? " checked" : "", escaped(axes[a].label));
  }
  for (size_t a = 0; a < axes.size(); ++a) {
    out += fmt::format("<div class=\"view view-{}{}\">\n", axes[a].id, a == 0 ? " first" : "");
    for (size_t i = 0; i < pictures.size(); ++i) {
      const Picture& p = pictures[i];
      const std::string& svg = drawn[i * axes.size() + a];
      const std::string description = fmt::format("{} against {}. {}", p.title, axes[a].label, p.description);
      out += fmt::format(
          "<figure class=\"card\"><h3>{}</h3>\n{}\n{}{}</figure>\n", escaped(p.title),
          svg.empty() ? html::note("This curve could not be drawn.")
                      : html::image("image/svg+xml", svg, description),
          legend_html(p),
          p.remark.empty() ? "" : fmt::format("<figcaption>{}</figcaption>\n", escaped(p.remark)));
    }
    out += "</div>\n";
  }
  return out + "</div>\n" + remark;
}

std::vector<std::pair<double, double>> points_of(const Metrics& metrics, const Measure& measure,
                                                 const Axis& axis) {
  std::vector<std::pair<double, double>> points;
  for (const Json& line : metrics.lines) {
    const auto x = position(line, axis), y = value_of(line, measure);
    if (x && y) points.emplace_back(*x, *y);
  }
  return points;
}

void describe(Picture& picture, const Metrics& metrics, const Measure& measure, const std::string& name) {
  double first = NAN;
  for (const Json& line : metrics.lines) {
    if (const auto value = value_of(line, measure)) {
      first = *value;
      break;
    }
  }
  const double last = last_value(metrics, measure).value_or(NAN);
  picture.description += fmt::format("{} goes from {} to {}. ", name, value_text(measure.name, first),
                                     value_text(measure.name, last));
}

// A proof and a guess must not look alike.
std::string bound_remark(const Metrics& metrics) {
  std::set<std::string> kinds;
  for (const Json& line : metrics.lines) {
    const auto kind = line.find("error_bound_kind");
    if (kind != line.end() && kind->is_string()) kinds.insert(kind->get<std::string>());
  }
  if (kinds.size() > 1) return "Some bounds are rigorous, others estimated: the records say which.";
  if (kinds.empty()) return "";
  return *kinds.begin() == "rigorous" ? "Rigorous: the true error is not larger."
                                      : "Estimated: the constants behind it were measured, not known.";
}

// A benchmark's test accuracy of the epoch's cell.
bool is_truth(const Measure& m) {
  return m.object == "benchmark" && (m.name.ends_with("_test") || m.name == "test_acc");
}
// What runs are compared by: their own numbers, and of the objects those that searches are about.
bool is_compared(const Measure& m) {
  return m.object.empty() || is_truth(m) || m.object == "operation_shares";
}

}  // namespace

std::vector<Measure> measures_of(const std::vector<const Metrics*>& runs) {
  std::vector<Measure> out;
  std::set<std::pair<std::string, std::string>> seen;
  const auto add = [&](const std::string& object, const std::string& name) {
    if (seen.emplace(object, name).second) out.push_back({object, name});
  };
  for (const Metrics* metrics : runs) {
    for (const Json& line : metrics->lines) {
      for (const auto& [name, value] : line.items()) {
        if (positions().count(name) > 0) continue;
        if (value.is_number()) add("", name);
        if (!value.is_object()) continue;
        for (const auto& [part, number] : value.items()) {
          if (number.is_number()) add(name, part);
        }
      }
    }
  }
  return out;
}

bool wants_logarithm(double low, double high) { return low > 0 && high / low > 20; }

std::string capital(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::optional<double> value_of(const Json& line, const Measure& measure) {
  const Json* from = &line;
  if (!measure.object.empty()) {
    const auto object = line.find(measure.object);
    if (object == line.end() || !object->is_object()) return std::nullopt;
    from = &*object;
  }
  const auto value = from->find(measure.name);
  return value == from->end() ? std::nullopt : finite(*value);
}

std::optional<double> last_value(const Metrics& metrics, const Measure& measure) {
  for (auto line = metrics.lines.rbegin(); line != metrics.lines.rend(); ++line) {
    if (const auto value = value_of(*line, measure)) return value;
  }
  return std::nullopt;
}

std::string title_of(const std::string& name) {
  static const std::map<std::string, std::string> known{
      {"direction_norm", "norm of the direction"},
      {"mixed_over_direct", "implicit over direct term"},
      {"eigenvalue", "dominant eigenvalue"},
      {"valid_loss", "validation loss"},
      {"valid_accuracy", "validation accuracy"},
      {"train_loss", "training loss"},
      {"train_accuracy", "training accuracy"},
      {"operation_shares", "operations of the cell, shares"},
      {"operation_weights", "operations, mean weights"},
      {"rate", "rate of the weights"},
      {"f1_wrong", "labels that are wrong"},
      {"f1_replaced", "labels that were replaced"},
      {"series_rate", "linear rate"},
      {"skips", "skip connections"},
      {"weights", "learned weights"},
      {"regularisers", "learned regularisers"},
      {"hyperparameters", "learned hyperparameters"},
      {"cifar10_valid", "CIFAR-10 validation"},
      {"cifar10_test", "CIFAR-10 test"},
      {"cifar100_valid", "CIFAR-100 validation"},
      {"cifar100_test", "CIFAR-100 test"},
      {"imagenet16_valid", "ImageNet16 validation"},
      {"imagenet16_test", "ImageNet16 test"},
  };
  if (const auto found = known.find(name); found != known.end()) return found->second;
  std::string text = name;
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

bool is_percent(std::string_view name) { return contains(name, "accuracy"); }

std::string value_text(const std::string& name, double value) {
  return is_percent(name) ? html::percent_text(value) : html::number_text(value);
}

std::optional<double> oracle_calls(const Json& line) {
  const auto counts = line.find("counts");
  if (counts == line.end() || !counts->is_object()) return std::nullopt;
  double calls = 0;
  bool any = false;
  for (const char* name : {"inner_gradient", "outer_gradient", "hessian", "cross"}) {
    if (const auto count = counts->find(name); count != counts->end()) {
      if (const auto value = finite(*count)) {
        calls += *value;
        any = true;
      }
    }
  }
  return any ? std::optional(calls) : std::nullopt;
}

std::optional<double> position(const Json& line, const Axis& axis) {
  if (axis.id == "calls") return oracle_calls(line);
  const auto value = line.find(axis.id == "steps" ? "step" : "seconds");
  return value == line.end() ? std::nullopt : finite(*value);
}

std::vector<Axis> axes_of(const std::vector<const Metrics*>& runs) {
  bool epochs = true;
  for (const Metrics* metrics : runs) {
    epochs = epochs && !metrics->lines.empty() && metrics->lines.front().contains("epoch");
  }
  std::vector<Axis> axes;
  for (const Axis& axis : {Axis{"steps", epochs ? "epoch" : "step"}, Axis{"calls", "oracle calls"},
                           Axis{"seconds", "seconds"}}) {
    std::set<double> places;
    for (const Metrics* metrics : runs) {
      for (const Json& line : metrics->lines) {
        if (const auto place = position(line, axis); place && places.size() < 2) places.insert(*place);
      }
    }
    if (places.size() > 1) axes.push_back(axis);  // all records at one place make no curve
  }
  return axes;
}

std::vector<CurveGroup> curve_groups(const Metrics& metrics, const std::vector<CurveGroup>& first,
                                     const std::vector<std::string>& ignored,
                                     std::vector<std::pair<std::string, double>>& constant) {
  const std::vector<const Metrics*> runs{&metrics};
  std::vector<CurveGroup> groups;
  std::vector<Measure> rest = measures_of(runs);
  const auto take = [&](CurveGroup group) {
    if (group.measures.size() > most_series) {
      group.remark += fmt::format("{}The first {} of {}.", group.remark.empty() ? "" : " ", most_series,
                                  group.measures.size());
      group.measures.resize(most_series);
    }
    if (!group.measures.empty() && groups.size() < most_groups) groups.push_back(std::move(group));
  };
  for (const CurveGroup& given : first) {
    CurveGroup group = given;
    std::erase_if(group.measures,
                  [&](const Measure& m) { return std::find(rest.begin(), rest.end(), m) == rest.end(); });
    for (const Measure& m : group.measures) rest.erase(std::find(rest.begin(), rest.end(), m));
    take(std::move(group));
  }
  std::erase_if(rest, [&](const Measure& m) {
    const std::string& name = m.object.empty() ? m.name : m.object;
    return std::find(ignored.begin(), ignored.end(), name) != ignored.end();
  });
  // Constants are words, not pictures.
  std::erase_if(rest, [&](const Measure& m) {
    if (!m.object.empty()) return false;
    const Extent range = range_of(runs, m);
    if (range.count > 0 && range.low != range.high) return false;
    if (range.count > 0) constant.emplace_back(title_of(m.name), range.low);
    return true;
  });
  const auto together = [&](const char* title, const auto& belongs) {
    CurveGroup group{.title = title, .remark = {}, .measures = {}};
    for (const Measure& m : rest) {
      if (m.object.empty() && belongs(m.name)) group.measures.push_back(m);
    }
    std::erase_if(rest, [&](const Measure& m) { return m.object.empty() && belongs(m.name); });
    group.percent = !group.measures.empty() && is_percent(group.measures.front().name);
    if (group.measures.size() == 1) group.title = capital(title_of(group.measures.front().name));
    take(std::move(group));
  };
  together("Loss", [](const std::string& name) { return name == "loss" || name.ends_with("_loss"); });
  together("Accuracy in percent", [](const std::string& name) { return is_percent(name); });
  together("Norm of the direction", [](const std::string& name) { return name == "direction_norm"; });
  together("Error bound", [](const std::string& name) { return contains(name, "bound"); });
  if (!groups.empty() && contains(groups.back().measures.front().name, "error_bound")) {
    groups.back().remark = bound_remark(metrics);
  }
  while (!rest.empty()) {
    const Measure next = rest.front();
    CurveGroup group{.title = capital(title_of(next.object.empty() ? next.name : next.object)),
                     .remark = {},
                     .measures = {}};
    for (const Measure& m : rest) {
      if (next.object.empty() ? m == next : m.object == next.object) group.measures.push_back(m);
    }
    std::erase_if(
        rest, [&](const Measure& m) { return next.object.empty() ? m == next : m.object == next.object; });
    take(std::move(group));
  }
  return groups;
}

std::string curves_html(const Metrics& metrics, const std::vector<CurveGroup>& first,
                        const std::vector<std::string>& ignored) {
  if (metrics.lines.empty()) return html::note("No steps have been recorded.");
  if (metrics.lines.size() == 1) return html::note("There is one record only: a curve needs two.");
  const std::vector<Axis> axes = axes_of({&metrics});
  std::vector<std::pair<std::string, double>> constant;
  std::vector<Picture> pictures;
  for (const CurveGroup& group : curve_groups(metrics, first, ignored, constant)) {
    Picture picture{
        .title = group.title, .remark = group.remark, .description = {}, .legend = {}, .scripts = {}};
    bool logarithmic = !group.percent;
    for (size_t i = 0; i < group.measures.size(); ++i) {
      const Measure& m = group.measures[i];
      const std::string name = m.object.empty() ? title_of(m.name) : m.name;
      picture.legend.emplace_back(name, i);
      describe(picture, metrics, m, name);
      logarithmic = logarithmic && (m.object.empty() || group.decades) && range_of({&metrics}, m).low > 0;
    }
    Extent all;
    for (const Measure& m : group.measures) {
      const Extent one = range_of({&metrics}, m);
      all.low = std::min(all.low, one.low);
      all.high = std::max(all.high, one.high);
    }
    logarithmic = logarithmic && wants_logarithm(all.low, all.high);
    if (logarithmic) picture.title += " (log scale)";
    for (const Axis& axis : axes) {
      CurvePlot plot{
          .curves = {}, .x_label = axis.label, .logarithmic = logarithmic, .whole = axis.id == "steps"};
      for (size_t i = 0; i < group.measures.size(); ++i) {
        plot.curves.push_back({.points = points_of(metrics, group.measures[i], axis), .color = i});
      }
      picture.scripts.push_back(plot_script(plot));
    }
    pictures.push_back(std::move(picture));
  }
  std::string remark;
  for (const auto& [name, value] : constant) {
    remark += fmt::format("{}{} {}", remark.empty() ? "" : ", ", escaped(name), html::number_text(value));
  }
  if (!remark.empty()) remark = fmt::format("<p class=\"remark\">Did not change: {}.</p>\n", remark);
  return section(axes, pictures, remark);
}

std::string compared_curves_html(const std::vector<const Metrics*>& runs,
                                 const std::vector<std::string>& names) {
  const std::vector<Axis> axes = axes_of(runs);
  std::vector<Measure> measures = measures_of(runs);
  std::erase_if(measures, [&](const Measure& m) {
    const Extent range = range_of(runs, m);
    return !is_compared(m) || range.count == 0 || range.low == range.high;
  });
  // What people ask for first comes first.
  const auto rank = [](const Measure& m) {
    if (!m.object.empty()) return is_truth(m) ? 0 : 4;
    return is_percent(m.name) ? 0 : contains(m.name, "loss") ? 1 : m.name == "direction_norm" ? 2 : 3;
  };
  std::stable_sort(measures.begin(), measures.end(),
                   [&](const Measure& a, const Measure& b) { return rank(a) < rank(b); });
  if (measures.size() > most_groups) measures.resize(most_groups);
  std::vector<Picture> pictures;
  for (const Measure& m : measures) {
    const std::string title = m.object.empty() ? title_of(m.name)
                              : is_truth(m)    ? "true accuracy, " + title_of(m.name)
                                               : fmt::format("{}: {}", title_of(m.object), m.name);
    Picture picture{.title = capital(title), .remark = {}, .description = {}, .legend = {}, .scripts = {}};
    const bool percent = is_percent(m.name) || is_truth(m);
    const Extent range = range_of(runs, m);
    const bool logarithmic = m.object.empty() && !percent && wants_logarithm(range.low, range.high);
    if (percent) picture.title += " in percent";
    if (logarithmic) picture.title += " (log scale)";
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!last_value(*runs[i], m)) continue;
      picture.legend.emplace_back(names[i], i);
      describe(picture, *runs[i], m, names[i]);
    }
    for (const Axis& axis : axes) {
      CurvePlot plot{
          .curves = {}, .x_label = axis.label, .logarithmic = logarithmic, .whole = axis.id == "steps"};
      for (size_t i = 0; i < runs.size(); ++i) {
        plot.curves.push_back({.points = points_of(*runs[i], m, axis), .color = i});
      }
      picture.scripts.push_back(plot_script(plot));
    }
    pictures.push_back(std::move(picture));
  }
  return section(axes, pictures, "");
}

}  // namespace bilevel
