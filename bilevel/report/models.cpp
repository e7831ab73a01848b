// Models that a summary compares: the one that is returned beside those that people would use without it.
// Their numbers have the same names behind a prefix, baseline_test_loss beside test_loss.

#include "bilevel/report/curves.h"
#include "bilevel/report/html.h"
#include "bilevel/report/job_parts.h"

namespace bilevel {

std::string models_html(const RunData& run, const std::vector<ComparedModel>& models) {
  html::Table table{.head = {"model"}, .rows = {}, .caption = {}, .numbers = true};
  std::vector<std::string> columns;
  for (const std::string part : {"train", "valid", "test"}) {
    for (const std::string measure : {"accuracy", "r2", "rmse", "loss"}) {
      const std::string name = part + "_" + measure;
      for (const ComparedModel& model : models) {
        if (!number_in(run.summary, model.prefix + name)) continue;
        columns.push_back(name);
        table.head.push_back(html::escaped(title_of(name)));
        break;
      }
    }
  }
  if (columns.empty()) return "";
  for (const ComparedModel& model : models) {
    std::vector<std::string> row = {html::escaped(model.title)};
    for (const std::string& name : columns) {
      const auto value = number_in(run.summary, model.prefix + name);
      row.push_back(value ? value_text(name, *value) : "\u2013");
    }
    table.rows.push_back(std::move(row));
  }
  return html::table(table);
}

}  // namespace bilevel
