// The page of `bilevel interact`: how much the tasks learn from each other, as a matrix.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "bilevel/data/npy.h"
#include "bilevel/report/html.h"
#include "bilevel/report/job_parts.h"
#include "bilevel/report/plot.h"

namespace bilevel {
namespace {

constexpr int64_t most_side = 80;

Tensor read_matrix(const std::string& path) {
  Tensor matrix = read_npy(path).to(at::kDouble);
  if (matrix.dim() != 2 || matrix.numel() == 0) {
    throw std::runtime_error(fmt::format("{}: expected a matrix, found {} dimensions", path, matrix.dim()));
  }
  return matrix;
}

std::vector<std::string> task_names(const RunData& run, int64_t count) {
  std::vector<std::string> names;
  const auto given = run.summary.find("task_names");
  const bool known =
      given != run.summary.end() && given->is_array() && static_cast<int64_t>(given->size()) == count;
  for (int64_t i = 0; i < count; ++i) {
    const Json* name = known ? &(*given)[static_cast<size_t>(i)] : nullptr;
    names.push_back(name != nullptr && name->is_string() ? name->get<std::string>() : std::to_string(i));
  }
  return names;
}

std::string matrix_html(const RunData& run) {
  const std::string path = run.facts.folder + "/interaction.npy";
  if (!std::filesystem::exists(path)) return html::note("The run has written no interaction.npy.");
  if (!can_plot()) return html::note("No picture of the matrix: " + plot_package() + ".");
  Tensor matrix = read_matrix(path);
  const int64_t rows = std::min(matrix.size(0), most_side), columns = std::min(matrix.size(1), most_side);
  const bool cut = rows < matrix.size(0) || columns < matrix.size(1);
  HeatMap map{.values = {},
              .row_names = task_names(run, matrix.size(0)),
              .column_names = task_names(run, matrix.size(1)),
              .x_label = "",
              .square = true};
  matrix = matrix.slice(0, 0, rows).slice(1, 0, columns).contiguous();
  map.row_names.resize(static_cast<size_t>(rows));
  map.column_names.resize(static_cast<size_t>(columns));
  double low = INFINITY, high = -INFINITY;
  for (int64_t i = 0; i < rows; ++i) {
    const double* row = matrix.data_ptr<double>() + i * columns;
    map.values.emplace_back(row, row + columns);
    // A task has no interaction with itself to show.
    if (matrix.size(0) == matrix.size(1)) map.values.back()[static_cast<size_t>(i)] = NAN;
    for (const double value : map.values.back()) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (!(low <= high)) return html::note("The matrix holds no finite number.");
  map.low = std::min(0.0, low);
  map.high = high;
  const std::string svg = draw_plots({plot_script(map)}).front();
  const std::string description = fmt::format("Interaction of {} tasks, from {} to {}", rows,
                                              html::number_text(low), html::number_text(high));
  return "<p>How strongly the models of two tasks are drawn together; a task with itself is left "
         "free.</p>\n" +
         heat_scale_html(map.low, map.high) +
         fmt::format(
             "<div class=\"grid\"><figure class=\"card\"><h3>Interaction of the "
             "tasks</h3>\n{}{}</figure></div>\n",
             svg.empty() ? html::note("The matrix could not be drawn.")
                         : html::image("image/svg+xml", svg, description),
             cut ? fmt::format("<figcaption>The first {} tasks.</figcaption>", most_side) : "");
}

}  // namespace

JobReport interact_report(const RunData& run) {
  JobReport job = plain_report(run);
  std::string content;
  try {
    content = matrix_html(run);
  } catch (const std::exception& error) {
    content = html::note(error.what());
  }
  job.sections.insert(job.sections.begin(),
                      {.id = "interaction", .title = "Interaction", .content = std::move(content)});
  if (std::string models = models_html(
          run,
          {{"returned", ""}, {"every task by itself", "independent_"}, {"one model for all", "pooled_"}});
      !models.empty()) {
    job.sections.insert(job.sections.begin(),
                        {.id = "models", .title = "Compared", .content = std::move(models)});
  }
  return job;
}

}  // namespace bilevel
