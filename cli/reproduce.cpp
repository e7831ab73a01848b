// `bilevel reproduce`: the papers' tables and figures, and the list of them.

#include <fmt/format.h>

#include <string>

#include "cli/commands.h"
#include "cli/job_command.h"
#include "reproduce/job.h"

namespace bilevel::cli {

void add_reproduce_command(CLI::App& app, int& exit_code) {
  std::string footer = "Items:\n";
  for (const reproduce::Item& each : reproduce::items()) {
    footer += fmt::format("  {:<20}{}\n", each.name, each.summary);
  }
  add_job<reproduce::ReproduceJobOptions, WholeRunOptions>(
      app, exit_code,
      {"reproduce",
       "Reproduce the papers' tables and figures, ours beside theirs",
       footer + "Examples:\n  bilevel reproduce krmd:toy --scale quick\n"
                "  bilevel reproduce --resume runs/reproduce-20260101-120000-0",
       {"item"}},
      reproduce::run_reproduce,
      [](const reproduce::ReproduceJobResult& result) { fmt::print("{}", result.text); });
}

}  // namespace bilevel::cli
