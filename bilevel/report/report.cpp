#include "bilevel/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "bilevel/fields/option_text.h"
#include "bilevel/report/html.h"
#include "bilevel/report/study.h"
#include "bilevel/report/study_curves.h"
#include "bilevel/report/study_table.h"
#include "bilevel/report/style.h"
#include "bilevel/run/blas_kernels.h"
#include "bilevel/run/run_context.h"
#include "bilevel/run/shell_word.h"

namespace bilevel {
namespace {

using html::escaped;

// A value of an option: a word, or several.
std::string option_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& one : value) text += (text.empty() ? "" : " ") + option_text(one);
  return text;
}

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string folder_name(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (path.filename().empty() || path.filename() == ".")
    path = std::filesystem::absolute(path).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

std::string page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      // Whatever a file smuggled in: nothing is loaded from elsewhere and no script runs.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
      "'unsafe-inline'\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      escaped(title), report_style, body);
}

std::string section(const std::string& id, const std::string& title, const std::string& content) {
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\n{2}</section>\n",
      id, escaped(title), content);
}

std::string status_badge(RunStatus status) {
  return fmt::format("<span class=\"status {0}\">{0}</span>", name_of(status));
}

std::string headlines_html(const JobReport& job) {
  if (job.headlines.empty()) return "";
  std::string out = "<dl class=\"headlines\">\n";
  for (const auto& [label, value] : job.headlines) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(label), escaped(value));
  }
  return out + "</dl>\n";
}

std::string callouts(const RunData& run) {
  std::string out;
  const std::string resume = fmt::format("<p>It can go on: <code>bilevel {} --resume {}</code></p>",
                                         escaped(run.facts.command), escaped(shell_word(run.facts.folder)));
  if (run.facts.status == RunStatus::failed) {
    out += fmt::format(
        "<div class=\"callout\" id=\"failure\" role=\"note\"><p><strong>It failed.</strong> {}</p></div>\n",
        escaped(run.facts.message.empty() ? "No message was left." : run.facts.message));
  } else if (run.facts.status == RunStatus::interrupted || run.facts.status == RunStatus::killed) {
    out += fmt::format(
        "<div class=\"callout soft\" role=\"note\"><p><strong>{}</strong> What follows is what had been "
        "recorded by then.</p>{}</div>\n",
        run.facts.status == RunStatus::killed ? "The process ended without a word." : "It was interrupted.",
        resume);
  } else if (run.facts.status == RunStatus::running) {
    out +=
        "<div class=\"callout soft\" role=\"note\"><p>It is still running: this is how it stood when the "
        "page was "
        "written.</p></div>\n";
  }
  for (const std::string& text : run.notes) {
    out += fmt::format("<div class=\"callout soft\" role=\"note\"><p>{}</p></div>\n", escaped(text));
  }
  for (const char* name : {"warnings", "notes"}) {
    const Json* list = member(run.summary, name);
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& text : *list) {
      out += fmt::format("<div class=\"callout soft\" role=\"note\"><p>{}</p></div>\n",
                         escaped(option_text(text)));
    }
  }
  return out;
}

// What went wrong on the way and what was done about it.
std::string failures_html(const Json& summary) {
  const Json* list = member(summary, "failures");
  const Json* solve = member(summary, "solve");
  if (list == nullptr && solve != nullptr) list = member(*solve, "failures");
  if (list == nullptr || !list->is_array() || list->empty()) return "";
  html::Table table{.head = {"step", "what happened", "likely cause", "repair"}, .rows = {}};
  for (const Json& one : *list) {
    std::vector<std::string> row;
    for (const char* name : {"iteration", "what", "cause", "repair"}) {
      const Json* value = member(one, name);
      row.push_back(value == nullptr ? "" : escaped(option_text(*value)));
    }
    table.rows.push_back(std::move(row));
  }
  return html::table(table);
}

std::string configuration_html(const RunData& run) {
  html::Table given{.head = {"option", "value"}, .rows = {}}, effective = given;
  std::string command = "bilevel " + run.facts.command;
  if (const Json* options = member(run.config, "options"); options != nullptr && options->is_object()) {
    for (const auto& [name, value] : options->items()) {
      given.rows.push_back(
          {fmt::format("<code>{}</code>", escaped(flag_of(name))), escaped(option_text(value))});
    }
  }
  if (const Json* options = member(run.config, "effective"); options != nullptr && options->is_object()) {
    for (const auto& [name, value] : options->items()) {
      effective.rows.push_back(
          {fmt::format("<code>{}</code>", escaped(flag_of(name))), escaped(option_text(value))});
    }
  }
  std::string out;
  if (given.rows.empty()) {
    out += "<p>No option was given: everything is as the program comes.</p>\n";
  } else {
    given.caption = "What was asked for";
    out += html::table(given);
  }
  if (!effective.rows.empty()) {
    out += html::details(fmt::format("All {} options as they were in effect", effective.rows.size()),
                         html::table(effective));
  }
  out +=
      fmt::format("<p class=\"remark\">Again with these options: <code>bilevel {} --config {}</code></p>\n",
                  escaped(run.facts.command), escaped(shell_word(run.facts.folder + "/config.json")));
  return out;
}

const Json* last_counts(const RunData& run) {
  if (const Json* counts = member(run.summary, "counts")) return counts;
  for (auto line = run.metrics.lines.rbegin(); line != run.metrics.lines.rend(); ++line) {
    if (const Json* counts = member(*line, "counts")) return counts;
  }
  return nullptr;
}

std::optional<double> total_seconds(const RunData& run) {
  if (const Json* seconds = member(run.summary, "seconds"); seconds != nullptr && seconds->is_number()) {
    return seconds->get<double>();
  }
  return last_value(run.metrics, {.object = {}, .name = "seconds"});
}

std::string count_name(const std::string& name) {
  static const std::map<std::string, std::string> known{{"inner_gradient", "gradients of the inner loss"},
                                                        {"outer_gradient", "gradients of the outer loss"},
                                                        {"hessian", "Hessian products"},
                                                        {"cross", "cross products"},
                                                        {"samples", "examples read"}};
  const auto found = known.find(name);
  return found == known.end() ? title_of(name) : found->second;
}

std::string cost_html(const RunData& run) {
  html::Table cost{.head = {"cost", "number"}, .rows = {}, .caption = {}, .numbers = true};
  if (const Json* counts = last_counts(run); counts != nullptr && counts->is_object()) {
    for (const auto& [name, value] : counts->items()) {
      if (value.is_number()) {
        cost.rows.push_back({escaped(count_name(name)), html::number_text(value.get<double>())});
      }
    }
  }
  if (const auto seconds = total_seconds(run)) cost.rows.push_back({"time", html::time_text(*seconds)});
  html::Table machine{.head = {"machine", ""}, .rows = {}};
  const MachineFacts& facts = run.facts.machine;
  machine.rows = {{"processor", escaped(facts.cpu)},
                  {"threads", std::to_string(facts.threads)},
                  {"GPU", facts.cuda ? "can be used" : "none"},
                  {"LibTorch", escaped(facts.torch)},
                  {"BLAS", escaped(facts.blas)},
                  {"BLAS kernels", escaped(kernels_named_in(facts.blas))},
                  {"bilevel", escaped(facts.version)},
                  {"seed", std::to_string(run.facts.seed)},
                  {"started", escaped(run.facts.started)},
                  {"ended", escaped(run.facts.ended)}};
  std::erase_if(machine.rows, [](const auto& row) { return row[1].empty(); });
  machine.head = {"machine", "what it was"};
  return fmt::format("<div class=\"columns\">{}{}</div>\n", cost.rows.empty() ? "" : html::table(cost),
                     html::table(machine));
}

// The table behind the pictures; long runs show their end.
std::string records_html(const Metrics& metrics) {
  constexpr size_t most_rows = 200;
  std::vector<std::string> names;
  for (const Json& line : metrics.lines) {
    for (const auto& [name, value] : line.items()) {
      if (value.is_number() && std::find(names.begin(), names.end(), name) == names.end() &&
          names.size() < 16) {
        names.push_back(name);
      }
    }
  }
  if (names.empty()) return "";
  html::Table table{.head = {}, .rows = {}, .caption = {}, .numbers = true};
  for (const std::string& name : names) table.head.push_back(escaped(title_of(name)));
  const size_t first = metrics.lines.size() > most_rows ? metrics.lines.size() - most_rows : 0;
  for (size_t i = first; i < metrics.lines.size(); ++i) {
    std::vector<std::string> row;
    for (const std::string& name : names) {
      const auto value = value_of(metrics.lines[i], {.object = {}, .name = name});
      row.push_back(value ? html::number_text(*value) : "\u2013");
    }
    table.rows.push_back(std::move(row));
  }
  return html::details(
      first > 0 ? fmt::format("The last {} of {} records as numbers", most_rows, metrics.lines.size())
                : "The records as numbers",
      html::table(table));
}

std::string footer(const RunFacts& facts) {
  return fmt::format(
      "<footer>Written by <code>bilevel report</code>, version {}. This page loads nothing "
      "from anywhere.</footer>\n",
      escaped(facts.machine.version));
}

// ---- several runs ----

std::vector<std::string> column_heads(const std::string& first, const std::vector<std::string>& names) {
  std::vector<std::string> head{first};
  for (const std::string& name : names) head.push_back(escaped(name));
  return head;
}

std::string differences_html(const std::vector<RunData>& runs, const std::vector<std::string>& names) {
  std::vector<std::string> options{"command"};
  for (const RunData& run : runs) {
    const Json* effective = member(run.config, "effective");
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
         status_badge(runs[i].facts.status),
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
    add(escaped(count_name(count)), [&](size_t i) {
      const Json* counts = last_counts(runs[i]);
      const Json* value = counts == nullptr ? nullptr : member(*counts, count);
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

std::string RunData::effective(const std::string& option) const {
  const Json* options = member(config, "effective");
  const Json* value = options == nullptr ? nullptr : member(*options, option.c_str());
  return value == nullptr ? "" : option_text(*value);
}

RunData read_run_data(const std::string& folder) {
  RunData run;
  run.facts = read_run(folder);
  run.metrics = read_metrics(folder);
  for (const auto& [name, into] :
       {std::pair{"config.json", &run.config}, std::pair{"summary.json", &run.summary}}) {
    const std::string path = folder + "/" + name;
    if (!std::filesystem::exists(path)) continue;
    try {
      *into = read_json_file(path);
      if (!into->is_object()) throw std::runtime_error(path + ": expected an object");
    } catch (const std::exception& error) {
      *into = Json::object();
      run.notes.emplace_back(error.what());
    }
  }
  run.config = current_config(std::move(run.config));
  if (run.metrics.torn > 0) {
    run.notes.push_back(fmt::format("{} torn line(s) of metrics.jsonl are left out.", run.metrics.torn));
  }
  return run;
}

std::string run_page(const RunData& run, const JobReport& job) {
  const std::string name = folder_name(run.facts.folder);
  const std::string subject = job.subject.empty() ? "bilevel " + run.facts.command : job.subject;
  std::string body = fmt::format(
      "<header>\n<div class=\"eyebrow\"><span>bilevel {}</span>{}<span>{}</span></div>\n<h1>{}</h1>\n",
      escaped(run.facts.command), status_badge(run.facts.status), escaped(name), escaped(subject));
  if (!job.result.empty()) body += fmt::format("<p class=\"lead\" id=\"result\">{}</p>\n", job.result);
  body += headlines_html(job) + callouts(run) + "</header>\n<main>\n";
  body += section("curves", "How it went",
                  curves_html(run.metrics, job.curves, job.hidden_measures) + records_html(run.metrics));
  for (const ReportSection& part : job.sections) body += section(part.id, part.title, part.content);
  if (const std::string failures = failures_html(run.summary); !failures.empty()) {
    body += section("failures", "Failures and repairs", failures);
  }
  body += section("configuration", "Configuration", configuration_html(run));
  body += section("cost", "Cost and machine", cost_html(run));
  return page(fmt::format("{} \u00b7 {} \u00b7 bilevel", subject, name),
              body + "</main>\n" + footer(run.facts));
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
  return page(fmt::format("{} runs compared \u00b7 bilevel", runs.size()),
              body + "</main>\n" + footer(runs.front().facts));
}

}  // namespace bilevel
