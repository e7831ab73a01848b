// Several runs on one page.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "bilevel/report/curves.h"
#include "bilevel/report/html.h"
#include "bilevel/report/page.h"
#include "bilevel/report/report.h"
#include "bilevel/report/study.h"
#include "bilevel/report/study_curves.h"
#include "bilevel/report/study_table.h"

namespace bilevel {
namespace {

using html::escaped;
using page::folder_name;
using page::section;

std::vector<std::string> column_heads(const std::string& first, const std::vector<std::string>& names) {
  std::vector<std::string> head{first};
  for (const std::string& name : names) head.push_back(escaped(name));
  return head;
}

std::string differences_html(const std::vector<RunData>& runs, const std::vector<std::string>& names) {
  std::vector<std::string> options{"command"};
  for (const RunData& run : runs) {
    const Json* effective = page::member(run.config, "effective");
    if (effective == nullptr || !effective->is_object()) continue;
    for (const auto& [name, value] : effective->items()) {
      if (std::find(options.begin(), options.end(), name) == options.end()) options.push_back(name);
    }
  }
  html::Table table{.head = column_heads("option", names), .rows = {}};
  for (const std::string& option : options) {
    std::set<std::string> values;
    std::vector<std::string> row{fmt::format("<code>{}</code>", escaped(shown_option(option)))};
    for (const RunData& run : runs) {
      const std::string value = option == "command" ? run.facts.command : run.effective(option);
      values.insert(value);
      row.push_back(value.empty() ? "\u2013" : escaped(value));
    }
    if (values.size() > 1) table.rows.push_back(std::move(row));
  }
  const size_t same = options.size() - table.rows.size();
  if (table.rows.empty()) return fmt::format("<p>All {} options are the same.</p>\n", same);
  return html::table(table) + fmt::format("<p class=\"remark\">{} other options are the same.</p>\n", same);
}

std::string list_html(const std::vector<RunData>& runs, const std::vector<JobReport>& jobs,
                      const std::vector<std::string>& names) {
  html::Table list{.head = {"run", "what", "status", "result"}, .rows = {}};
  for (size_t i = 0; i < runs.size(); ++i) {
    list.rows.push_back(
        {escaped(names[i]), escaped(jobs[i].subject.empty() ? runs[i].facts.command : jobs[i].subject),
         page::status_badge(runs[i].facts.status),
         runs[i].facts.status == RunStatus::failed ? escaped(runs[i].facts.message) : jobs[i].result});
  }
  return html::table(list);
}

// "By --method: idarts (n = 4), darts (n = 4)."
std::string study_lead(const Study& study) {
  std::string options, groups;
  for (const std::string& option : study.options) {
    options +=
        fmt::format("{}<code>{}</code>", options.empty() ? "By " : ", ", escaped(shown_option(option)));
  }
  for (const StudyGroup& group : study.groups) {
    groups +=
        fmt::format("{}{} (n = {})", groups.empty() ? "" : ", ", escaped(group.label), group.runs.size());
  }
  return fmt::format("<p class=\"lead\">{}{}.</p>\n", options.empty() ? "" : options + ": ", groups);
}

std::string results_html(const std::vector<RunData>& runs, const std::vector<JobReport>& jobs,
                         const std::vector<std::string>& names) {
  html::Table table{.head = column_heads("result", names), .rows = {}, .caption = {}, .numbers = true};
  const auto add = [&](const std::string& title, const auto& text) {
    std::vector<std::string> row{title};
    bool any = false;
    for (size_t i = 0; i < runs.size(); ++i) {
      row.push_back(text(i));
      any = any || !row.back().empty();
      if (row.back().empty()) row.back() = "\u2013";
    }
    if (any) table.rows.push_back(std::move(row));
  };
  add("status", [&](size_t i) { return std::string(name_of(runs[i].facts.status)); });
  std::vector<std::string> labels;
  for (const JobReport& job : jobs) {
    for (const auto& [label, value] : job.headlines) {
      if (std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
    }
  }
  for (const std::string& label : labels) {
    add(escaped(label), [&](size_t i) {
      for (const auto& [name, value] : jobs[i].headlines) {
        if (name == label) return escaped(value);
      }
      return std::string();
    });
  }
  std::set<std::string> seen;
  for (const RunData& run : runs) {
    if (run.metrics.lines.empty()) continue;
    for (const auto& [name, value] : run.metrics.lines.back().items()) {
      const bool shown = std::find(labels.begin(), labels.end(), title_of(name)) != labels.end();
      if (!value.is_number() || shown || name == "seconds" || name == "iteration" ||
          !seen.insert(name).second) {
        continue;
      }
      add("last " + escaped(title_of(name)), [&, key = name](size_t i) {
        const auto last = last_value(runs[i].metrics, {.object = {}, .name = key});
        return last ? value_text(key, *last) : std::string();
      });
    }
  }
  for (const char* count : {"inner_gradient", "outer_gradient", "hessian", "cross"}) {
    add(escaped(page::count_name(count)), [&](size_t i) {
      const Json* counts = page::last_counts(runs[i]);
      const Json* value = counts == nullptr ? nullptr : page::member(*counts, count);
      return value != nullptr && value->is_number() ? html::number_text(value->get<double>()) : std::string();
    });
  }
  return html::table(table);
}

}  // namespace

std::vector<std::string> names_of_runs(const std::vector<RunData>& runs) {
  std::map<std::string, int> times;
  for (const RunData& run : runs) ++times[folder_name(run.facts.folder)];
  std::vector<std::string> names;
  for (const RunData& run : runs) {
    const std::string name = folder_name(run.facts.folder);
    names.push_back(times[name] > 1 ? run.facts.folder : name);
  }
  return names;
}

std::string comparison_page(const std::vector<RunData>& runs, const std::vector<JobReport>& jobs,
                            const Study& study) {
  const std::vector<std::string> names = names_of_runs(runs);
  std::vector<const Metrics*> metrics;
  for (const RunData& run : runs) metrics.push_back(&run.metrics);
  std::string body = fmt::format(
      "<header>\n<div class=\"eyebrow\"><span>bilevel report</span></div>\n<h1>{} runs compared</h1>\n",
      runs.size());
  const std::string list = list_html(runs, jobs, names);
  // Of a study the configurations come first, of single runs the runs.
  body += (study.repeated() ? study_lead(study) : list) + "</header>\n<main>\n";
  body +=
      section("study", study.repeated() ? "Mean and spread" : "Results by configuration", study_html(study));
  if (const std::string means = study_curves_html(runs, study); !means.empty()) {
    body += section("means", "Means by step", means);
  }
  body += section(
      "results", "Results run by run",
      (study.repeated() ? html::details("What each run was", list) : "") + results_html(runs, jobs, names));
  body += section("curves", "How they went", compared_curves_html(metrics, names));
  body += section("configuration", "What differs", differences_html(runs, names));
  return page::whole(fmt::format("{} runs compared \u00b7 bilevel", runs.size()),
                     body + "</main>\n" + page::footer(runs.front().facts));
}

}  // namespace bilevel
