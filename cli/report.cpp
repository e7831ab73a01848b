// `bilevel report`: a run as one HTML page, or several runs as a study: one page, and its table in three
// forms.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/data/write_file.h"
#include "bilevel/report/jobs.h"
#include "bilevel/report/plot.h"
#include "bilevel/report/report.h"
#include "bilevel/report/study.h"
#include "bilevel/report/study_table.h"
#include "cli/commands.h"
#include "cli/json.h"

namespace bilevel::cli {
namespace {

struct Options {
  std::vector<std::string> folders;
  std::string out;
  std::vector<std::string> by;
  bool json = false;
};

void report_one(const Options& o, const RunData& run, const JobReport& job) {
  if (!o.by.empty()) {
    throw std::invalid_argument("--by: parts several runs into configurations, and one run was given");
  }
  const std::string out = o.out.empty() ? o.folders.front() + "/report.html" : o.out;
  write_file(out, run_page(run, job));
  if (o.json) {
    fmt::print("{}\n", Json{{"report", out}, {"runs", o.folders}}.dump());
  } else {
    fmt::print("{}\n", out);
  }
}

// The page's name without its ending, to which the table's files add theirs.
std::string stem_of(const std::string& page) {
  const std::filesystem::path path(page);
  return (path.parent_path() / path.stem()).string();
}

void report_study(const Options& o, const std::vector<RunData>& runs, const std::vector<JobReport>& jobs) {
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
  if (o.json) {
    const Json tables = {{"csv", stem + ".csv"}, {"markdown", stem + ".md"}, {"latex", stem + ".tex"}};
    const Json json = {
        {"report", out}, {"runs", o.folders}, {"tables", tables}, {"study", study_json(study)}};
    // Names of folders may hold bytes that are no UTF-8.
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  fmt::print("{}\n", out);
  for (const char* ending : {".csv", ".md", ".tex"}) fmt::print("{}{}\n", stem, ending);
  if (!study.groups.empty()) fmt::print("\n{}", study_markdown(study));
  for (const std::string& note : study.notes) fmt::print("{}\n", note);
}

void report(const Options& o) {
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
  if (runs.size() == 1) {
    report_one(o, runs.front(), jobs.front());
  } else {
    report_study(o, runs, jobs);
  }
  if (!can_plot()) fmt::print(stderr, "warning: no curves: {}\n", plot_package());
}

}  // namespace

void add_report_command(CLI::App& app, int& /*exit_code*/) {
  CLI::App* command = app.add_subcommand("report", "A run as one HTML page, or several runs as a study");
  command->footer(
      "Runs that differ in nothing but the seed are one configuration: several folders give mean, standard "
      "deviation\n"
      "and number of runs of each configuration, as a page and as a table (-table.csv, .md and .tex beside "
      "the page).\n"
      "The page needs no network, no script and no other file; curves need gnuplot, cells graphviz.\n"
      "Examples:\n"
      "  bilevel report runs/search-20260101-120000-0\n"
      "  bilevel report runs/soba runs/stocbio --out comparison.html\n"
      "  bilevel report runs/idarts-* runs/darts-* --out study.html");
  const auto o = std::make_shared<Options>();
  command->add_option("folders", o->folders, "of the runs; several are a study")->required();
  command->add_option(
      "--out", o->out,
      "file to write; report.html in the run's folder, comparison.html beside the first of several");
  command
      ->add_option("--by", o->by,
                   "options that tell the configurations of several runs apart, with commas: method,guard; "
                   "left out: all that differ but the seed")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_flag("--json", o->json, "print one JSON object on stdout and nothing else");
  command->callback([o] { report(*o); });
}

}  // namespace bilevel::cli
