// The page of `bilevel tune`: the regularisers, and the features that got the most and the least.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>

#include "bilevel/data/npy.h"
#include "bilevel/report/html.h"
#include "bilevel/report/job_parts.h"

namespace bilevel {
namespace {

std::string features_html(const RunData& run, const char* name, const char* title) {
  const auto rows = run.summary.find(name);
  if (rows == run.summary.end() || !rows->is_array() || rows->empty()) return "";
  html::Table table{.head = {"feature", "regulariser"}, .rows = {}, .caption = title, .numbers = true};
  for (const Json& row : *rows) {
    const auto value = number_in(row, "regulariser");
    table.rows.push_back({html::escaped(text_in(row, "name")), value ? html::number_text(*value) : "\u2013"});
  }
  return html::table(table);
}

std::string picture_html(const std::string& path) {
  if (!std::filesystem::exists(path)) return "";
  try {
    const Tensor logarithms = read_npy(path).to(at::kDouble).flatten().log10().contiguous();
    const double* first = logarithms.data_ptr<double>();
    return values_html({.values = {first, first + logarithms.numel()},
                        .label = "log10 of the regulariser",
                        .title = fmt::format("{} regularisers at the end, log10",
                                             html::number_text(static_cast<double>(logarithms.numel())))});
  } catch (const std::exception& error) {
    return html::note(error.what());
  }
}

}  // namespace

JobReport tune_report(const RunData& run) {
  JobReport job = plain_report(run);
  if (!run.metrics.lines.empty()) {
    const auto values = run.metrics.lines.back().find("regularisers");
    if (values != run.metrics.lines.back().end() && values->is_object()) {
      CurveGroup group{
          .title = "Regularisers", .remark = {}, .measures = {}, .percent = false, .decades = true};
      for (const auto& [name, value] : values->items()) {
        group.measures.push_back({.object = "regularisers", .name = name});
      }
      job.curves.push_back(group);
    }
  }
  if (const std::string models =
          models_html(run, {{"returned", ""}, {"one regulariser for all", "baseline_"}});
      !models.empty()) {
    job.sections.push_back({.id = "models", .title = "Compared", .content = models});
  }
  const std::string content = fmt::format("<div class=\"grid\">{}</div>\n<div class=\"columns\">{}{}</div>\n",
                                          picture_html(run.facts.folder + "/regularisers.npy"),
                                          features_html(run, "most_regularised", "Most regularised"),
                                          features_html(run, "least_regularised", "Least regularised"));
  job.sections.push_back({.id = "learned", .title = "What was learned", .content = content});
  return job;
}

}  // namespace bilevel
