// `bilevel report`: a run as one HTML page, or several runs as a study: one page, and its table in three
// forms.

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/report/jobs.h"
#include "bilevel/report/plot.h"
#include "bilevel/report/report.h"
#include "bilevel/report/study.h"
#include "bilevel/report/study_table.h"
#include "bilevel/run/json.h"
#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> folders;
  std::string out;
  std::vector<std::string> by;
  Given given = {};
  static const Fields<ReportOptions>& fields();
};

const Fields<ReportOptions>& ReportOptions::fields() {
  static const Fields<ReportOptions> table = [] {
    Fields<ReportOptions> f;
    f.add(
         "folders", [](auto& o) -> auto& { return o.folders; }, "folders of the runs; several make a study")
        .required()
        .first();
    f.add(
         "out", [](auto& o) -> auto& { return o.out; },
         "file to write; default: report.html in the run's folder, or comparison.html beside the first of "
         "several")
        .first();
    f.add(
         "by", [](auto& o) -> auto& { return o.by; },
         "options that distinguish the configurations of several runs, separated by commas: method,guard; "
         "default: all that differ, except the seed")
        .first();
    return f;
  }();
  return table;
}

struct Reported {
  std::vector<std::string> files = {};
  std::string table = {};  // of a study
  std::vector<std::string> notes = {};
  Json json = {};
};

Reported report_one(const ReportOptions& o, const RunData& run, const JobReport& job) {
  if (!o.by.empty()) {
    throw OptionError(
        fmt::format("{}: groups several runs into configurations, but only one run was given", named("by")));
  }
  const std::string out = o.out.empty() ? o.folders.front() + "/report.html" : o.out;
  write_file(out, run_page(run, job));
  return {.files = {out}, .json = {{"report", out}, {"runs", o.folders}}};
}

// The page's name without its ending, to which the table's files add theirs.
std::string stem_of(const std::string& page) {
  const std::filesystem::path path(page);
  return (path.parent_path() / path.stem()).string();
}

Reported report_study(const ReportOptions& o, const std::vector<RunData>& runs,
                      const std::vector<JobReport>& jobs) {
  Study study = make_study(runs, jobs, o.by);
  std::string out = o.out;
  if (out.empty()) {
    const auto first = std::filesystem::absolute(o.folders.front()).lexically_normal();
    // With a slash at its end the folder is its own parent.
    out =
        ((first.filename().empty() ? first.parent_path() : first).parent_path() / "comparison.html").string();
  }
  const std::string stem = stem_of(out) + "-table";
  for (const auto& [ending, content] :
       {std::pair{".csv", study_csv(study)}, std::pair{".md", study_markdown(study)},
        std::pair{".tex", study_latex(study)}}) {
    write_file(stem + ending, content);
    study.files.push_back(std::filesystem::path(stem + ending).filename().string());
  }
  write_file(out, comparison_page(runs, jobs, study));
  const Json tables = {{"csv", stem + ".csv"}, {"markdown", stem + ".md"}, {"latex", stem + ".tex"}};
  return {.files = {out, stem + ".csv", stem + ".md", stem + ".tex"},
          .table = study.groups.empty() ? "" : study_markdown(study),
          .notes = study.notes,
          .json = {{"report", out}, {"runs", o.folders}, {"tables", tables}, {"study", study_json(study)}}};
}

Reported report(const ReportOptions& o, RunContext& context) {
  std::vector<RunData> runs;
  std::vector<JobReport> jobs;
  for (const std::string& folder : o.folders) {
    if (!is_run(folder)) {
      throw std::invalid_argument(
          fmt::format("{}: there is no run.json in it; `bilevel runs` lists the folders of runs", folder));
    }
    runs.push_back(read_run_data(folder));
    jobs.push_back(job_report(runs.back()));
  }
  const bool is_one = runs.size() == 1;
  Reported reported = is_one ? report_one(o, runs.front(), jobs.front()) : report_study(o, runs, jobs);
  if (!can_plot()) context.warning("no curves: " + plot_package());
  return reported;
}

void print_reported(const Reported& reported) {
  for (const std::string& file : reported.files) fmt::print("{}\n", file);
  if (!reported.table.empty()) fmt::print("\n{}", reported.table);
  for (const std::string& note : reported.notes) fmt::print("{}\n", note);
}

}  // namespace

void add_report_command(CLI::App& app, int& exit_code) {
  add_question<ReportOptions>(
      app, exit_code,
      {"report",
       "Write a run as one HTML page, or several runs as a study",
       "Runs that differ only in the seed are one configuration: several folders give mean, standard "
       "deviation\n"
       "and number of runs of each configuration, as a page and as a table (-table.csv, .md and .tex beside "
       "the page).\n"
       "The page needs no network, no script and no other file; curves need gnuplot, cells graphviz.\n"
       "Examples:\n"
       "  bilevel report runs/search-20260101-120000-0\n"
       "  bilevel report runs/soba runs/stocbio --out comparison.html\n"
       "  bilevel report runs/idarts-* runs/darts-* --out study.html",
       {"folders"}},
      report, print_reported);
}

}  // namespace bilevel::cli
