// `bilevel report`: a run as one HTML page, or several runs compared on one.

#include "cli/report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/data/write_file.h"
#include "bilevel/run/plot.h"
#include "cli/commands.h"
#include "cli/picture.h"

namespace bilevel::cli {
namespace {

struct Options {
  std::vector<std::string> folders;
  std::string out;
  bool json = false;
};

JobReport job_report(const RunData& run) {
  if (run.facts.command == "search") return search_report(run);
  if (run.facts.command == "train") return train_report(run);
  if (run.facts.command == "clean") return clean_report(run);
  if (run.facts.command == "interact") return interact_report(run);
  if (run.facts.command == "tune") return tune_report(run);
  return plain_report(run);
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
  const bool one = runs.size() == 1;
  std::string out = o.out;
  if (out.empty()) {
    namespace fs = std::filesystem;
    const fs::path first = fs::absolute(o.folders.front()).lexically_normal();
    // With a slash at its end the folder is its own parent.
    out = one ? o.folders.front() + "/report.html"
              : ((first.filename().empty() ? first.parent_path() : first).parent_path() / "comparison.html")
                    .string();
  }
  write_file(out, one ? run_page(runs.front(), jobs.front()) : comparison_page(runs, jobs));
  if (o.json) {
    fmt::print("{}\n", Json{{"report", out}, {"runs", o.folders}}.dump());
  } else {
    fmt::print("{}\n", out);
  }
  if (!can_plot()) fmt::print(stderr, "warning: no curves: {}\n", plot_package());
}

}  // namespace

void add_report_command(CLI::App& app, int& /*exit_code*/) {
  CLI::App* command = app.add_subcommand("report", "A run as one HTML page, or several runs compared on one");
  command->footer(
      "The page needs no network, no script and no other file; curves need gnuplot, cells graphviz.\n"
      "Examples:\n"
      "  bilevel report runs/search-20260101-120000-0\n"
      "  bilevel report runs/soba runs/stocbio --out comparison.html");
  const auto o = std::make_shared<Options>();
  command->add_option("folders", o->folders, "of the runs; several are compared")->required();
  command->add_option(
      "--out", o->out,
      "file to write; report.html in the run's folder, comparison.html beside the first of several");
  command->add_flag("--json", o->json, "print one JSON object on stdout and nothing else");
  command->callback([o] { report(*o); });
}

}  // namespace bilevel::cli
