#include "bilevel/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bilevel/fields/option_text.h"
#include "bilevel/report/curves.h"
#include "bilevel/report/html.h"
#include "bilevel/report/page.h"
#include "bilevel/run/blas_kernels.h"
#include "bilevel/run/run_context.h"
#include "bilevel/run/shell_word.h"

namespace bilevel {
namespace {

using html::escaped;
using page::member;
using page::option_text;
using page::section;

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
  const std::string resume = fmt::format("<p>Resume it with <code>bilevel {} --resume {}</code></p>",
                                         escaped(run.facts.command), escaped(shell_word(run.facts.folder)));
  if (run.facts.status == RunStatus::failed) {
    out += fmt::format(
        "<div class=\"callout\" id=\"failure\" role=\"note\"><p><strong>It failed.</strong> {}</p></div>\n",
        escaped(run.facts.message.empty() ? "No message was left." : run.facts.message));
  } else if (run.facts.status == RunStatus::interrupted || run.facts.status == RunStatus::killed) {
    out += fmt::format(
        "<div class=\"callout soft\" role=\"note\"><p><strong>{}</strong> What follows is what had been "
        "recorded by then.</p>{}</div>\n",
        run.facts.status == RunStatus::killed ? "The process ended without a message."
                                              : "It was interrupted.",
        resume);
  } else if (run.facts.status == RunStatus::running) {
    out +=
        "<div class=\"callout soft\" role=\"note\"><p>It is still running: this is how it stood when the "
        "page was written.</p></div>\n";
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
    out += "<p>No option was given: all have their defaults.</p>\n";
  } else {
    given.caption = "Options that were given";
    out += html::table(given);
  }
  if (!effective.rows.empty()) {
    out += html::details(fmt::format("All {} options as they were in effect", effective.rows.size()),
                         html::table(effective));
  }
  out += fmt::format(
      "<p class=\"remark\">Run it again with these options: <code>bilevel {} --config {}</code></p>\n",
      escaped(run.facts.command), escaped(shell_word(run.facts.folder + "/config.json")));
  return out;
}

std::optional<double> total_seconds(const RunData& run) {
  if (const Json* seconds = member(run.summary, "seconds"); seconds != nullptr && seconds->is_number()) {
    return seconds->get<double>();
  }
  return last_value(run.metrics, {.object = {}, .name = "seconds"});
}

std::string cost_html(const RunData& run) {
  html::Table cost{.head = {"cost", "number"}, .rows = {}, .caption = {}, .numbers = true};
  if (const Json* counts = page::last_counts(run); counts != nullptr && counts->is_object()) {
    for (const auto& [name, value] : counts->items()) {
      if (value.is_number()) {
        cost.rows.push_back({escaped(page::count_name(name)), html::number_text(value.get<double>())});
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

}  // namespace

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
  const std::string name = page::folder_name(run.facts.folder);
  const std::string subject = job.subject.empty() ? "bilevel " + run.facts.command : job.subject;
  std::string body = fmt::format(
      "<header>\n<div class=\"eyebrow\"><span>bilevel {}</span>{}<span>{}</span></div>\n<h1>{}</h1>\n",
      escaped(run.facts.command), page::status_badge(run.facts.status), escaped(name), escaped(subject));
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
  return page::whole(fmt::format("{} \u00b7 {} \u00b7 bilevel", subject, name),
                     body + "</main>\n" + page::footer(run.facts));
}

}  // namespace bilevel
