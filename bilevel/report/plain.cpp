// What every run's page says, whatever the job: its subject, its result in a sentence, what x became.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "bilevel/data/npy.h"
#include "bilevel/report/curves.h"
#include "bilevel/report/html.h"
#include "bilevel/report/job_parts.h"
#include "bilevel/report/plot.h"

namespace bilevel {
namespace {

using html::escaped;

constexpr size_t few = 60, bins = 40;

std::string first_of(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return "";
}

// How a number changed over the run: "Outer loss went from 6.078 to 0.1838 in 200 steps".
std::string change_text(const RunData& run, const std::string& name) {
  const Measure measure{.object = {}, .name = name};
  std::vector<const Json*> having;
  for (const Json& line : run.metrics.lines) {
    if (value_of(line, measure)) having.push_back(&line);
  }
  if (having.empty()) return "";
  const double first = *value_of(*having.front(), measure), last = *value_of(*having.back(), measure);
  const double begin = number_in(*having.front(), "step").value_or(0),
               end = number_in(*having.back(), "step").value_or(0);
  const std::string title = capital(title_of(name));
  if (having.size() == 1) {
    return fmt::format("{} was {} at step {}", title, value_text(name, first), html::number_text(begin));
  }
  return fmt::format("{} went from {} to {} in {} {}", title, value_text(name, first), value_text(name, last),
                     html::number_text(end), having.back()->contains("epoch") ? "epochs" : "steps");
}

void add_learned(const RunData& run, JobReport& job) {
  const std::string path = run.facts.folder + "/x.npy";
  if (!std::filesystem::exists(path)) return;
  std::string content;
  try {
    const Tensor x = read_npy(path).to(at::kDouble).flatten().contiguous();
    ValuesPicture picture{.values = {x.data_ptr<double>(), x.data_ptr<double>() + x.numel()},
                          .label = "x",
                          .title = fmt::format("{} hyperparameters at the end",
                                               html::number_text(static_cast<double>(x.numel())))};
    content = fmt::format("<div class=\"grid\">{}</div>\n", values_html(picture));
  } catch (const std::exception& error) {
    content = html::note(error.what());
  }
  job.sections.push_back({.id = "learned", .title = "What was learned", .content = content});
}

}  // namespace

std::optional<double> number_in(const Json& object, const std::string& name) {
  if (!object.is_object()) return std::nullopt;
  const auto value = object.find(name);
  if (value == object.end() || !value->is_number()) return std::nullopt;
  const auto number = value->get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::string text_in(const Json& object, const std::string& name) {
  if (!object.is_object()) return "";
  const auto value = object.find(name);
  return value != object.end() && value->is_string() ? value->get<std::string>() : "";
}

std::optional<double> value_of_chosen(const RunData& run, const std::string& name) {
  const Measure measure{.object = {}, .name = name};
  const auto chosen = number_in(run.summary, "chosen_epoch");
  for (const Json& line : run.metrics.lines) {
    if (chosen && number_in(line, "epoch") == chosen) return value_of(line, measure);
  }
  return last_value(run.metrics, measure);
}

std::string name_of_path(const std::string& path) {
  std::filesystem::path last = std::filesystem::path(path).lexically_normal();
  if (!last.has_filename()) last = last.parent_path();
  const std::string name = last.filename().string();
  return name.empty() || name == "." || name == ".." ? path : name;
}

std::string heat_scale_html(double low, double high) {
  std::string stops;
  for (int i = 0; i <= 6; ++i) stops += fmt::format("{}{}", i == 0 ? "" : ",", heat_color(i / 6.0));
  return fmt::format(
      "<div class=\"bar\"><span>{}</span><i "
      "style=\"background:linear-gradient(90deg,{})\"></i><span>{}</span></div>\n",
      html::number_text(low), stops, html::number_text(high));
}

std::string values_html(const ValuesPicture& p) {
  if (!can_plot()) return html::note("No picture of the learned values: " + plot_package() + ".");
  std::vector<double> values;
  std::vector<bool> marked;
  for (size_t i = 0; i < p.values.size(); ++i) {
    if (!std::isfinite(p.values[i])) continue;
    values.push_back(p.values[i]);
    marked.push_back(i < p.marked.size() && p.marked[i]);
  }
  if (values.empty()) return html::note("No finite value was learned.");
  BarPlot plot{.parts = {}, .x_label = p.label, .y_label = "number"};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const bool marks = !p.marked_name.empty();
  if (values.size() <= few && !marks) {
    plot.parts = {values};
    plot.low = -0.5;
    plot.high = static_cast<double>(values.size()) - 0.5;
    plot.x_label = "position";
    plot.y_label = p.label;
  } else {
    const double room = *high > *low ? 0 : std::max(1e-9, std::abs(*low) / 10);
    plot.low = *low - room;
    plot.high = *high + room;
    plot.parts.assign(marks ? 2 : 1, std::vector<double>(bins, 0.0));
    for (size_t i = 0; i < values.size(); ++i) {
      const double place = (values[i] - plot.low) / (plot.high - plot.low) * static_cast<double>(bins);
      plot.parts[marks && marked[i] ? 1 : 0][std::min(bins - 1, static_cast<size_t>(std::max(0.0, place)))] +=
          1;
    }
  }
  const std::string svg = draw_plots({plot_script(plot)}).front();
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  const std::string range = fmt::format("From {} to {}, mean {}.", html::number_text(*low),
                                        html::number_text(*high), html::number_text(mean));
  std::string legend;
  if (marks) {
    legend = fmt::format(
        "<ul class=\"legend\"><li><span class=\"swatch\" style=\"background:{}\"></span>{}</li>"
        "<li><span class=\"swatch\" style=\"background:{}\"></span>{}</li></ul>\n",
        curve_color(0), escaped(p.unmarked_name), curve_color(1), escaped(p.marked_name));
  }
  return fmt::format("<figure class=\"card\"><h3>{}</h3>\n{}\n{}<figcaption>{}</figcaption></figure>\n",
                     escaped(p.title),
                     svg.empty() ? html::note("This picture could not be drawn.")
                                 : html::image("image/svg+xml", svg, p.title + ". " + range),
                     legend, range);
}

// Of a run without records along the way: what it ended with.
std::string ended_text(const Json& summary) {
  for (const char* name : {"test_accuracy", "valid_accuracy", "test_r2", "valid_r2", "valid_loss",
                           "outer_loss", "held_out_loss"}) {
    if (const auto value = number_in(summary, name)) {
      return fmt::format("{} is {}", capital(title_of(name)), value_text(name, *value));
    }
  }
  return "";
}

JobReport plain_report(const RunData& run) {
  JobReport job;
  const Json& s = run.summary;
  const std::string how = first_of({text_in(s, "algorithm"), text_in(s, "learner"), text_in(s, "method")});
  const std::string what =
      first_of({text_in(s, "problem"), text_in(s, "data"), run.effective("problem"), run.effective("data")});
  job.subject = how.empty() ? fmt::format("{}{}", run.facts.command, what.empty() ? "" : " of " + what)
                            : fmt::format("{}{}", how, what.empty() ? "" : " on " + what);
  const auto seconds = number_in(s, "seconds");
  std::string change;
  for (const char* name : {"valid_accuracy", "test_accuracy", "outer_loss", "valid_loss", "train_loss"}) {
    if (change = change_text(run, name); !change.empty()) break;
  }
  if (change.empty()) change = ended_text(s);
  if (!change.empty()) {
    job.result = escaped(change) + (seconds ? fmt::format(", {}.", html::time_text(*seconds)) : ".");
  } else {
    job.result = "It has recorded no loss and no accuracy.";
  }
  if (const auto test = number_in(s, "test_accuracy")) {
    const auto interval = number_in(s, "test_interval");
    job.headlines.emplace_back("test accuracy", interval
                                                    ? fmt::format("{:.2f} \u00b1 {:.2f} %", *test, *interval)
                                                    : html::percent_text(*test));
  }
  for (const char* name : {"valid_accuracy", "outer_loss", "valid_loss", "direction_norm", "error_bound"}) {
    auto last = last_value(run.metrics, {.object = {}, .name = name});
    if (run.metrics.lines.empty()) last = number_in(s, name);
    if (last && job.headlines.size() < 4) {
      job.headlines.emplace_back(title_of(name), value_text(name, *last));
    }
  }
  if (!run.metrics.lines.empty()) {
    if (const auto calls = oracle_calls(run.metrics.lines.back())) {
      job.headlines.emplace_back("oracle calls", html::number_text(*calls));
    }
  }
  if (seconds) job.headlines.emplace_back("time", html::time_text(*seconds));
  add_learned(run, job);
  return job;
}

}  // namespace bilevel
