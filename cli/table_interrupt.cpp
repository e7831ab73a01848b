#include "cli/table_interrupt.h"

#include <fmt/format.h>

#include "bilevel/run/stop_signal.h"
#include "cli/json.h"
#include "cli/run_options.h"

namespace bilevel::cli {

TableHooks interruptible(Progress& progress, const std::string& command) {
  return {.progress = [&progress, command](const std::string& what) { progress(command + ": " + what); },
          .between_fits =
              [] {
                if (stop_requested()) throw TableInterrupted();
              }};
}

int end_interrupted(const CLI::App& command, RunFolder& folder, const CommonOptions& common) {
  const Json json = {{"folder", folder.path()}, {"stopped", "interrupted"}};
  if (common.json) fmt::print("{}\n", json.dump());
  folder.end(RunStatus::interrupted, "", json);
  say_interrupted(command, folder);
  return interrupted;
}

void warn_of_unconverged(const FitCounts& counts, const CommonOptions& common) {
  if (counts.unconverged == 0 || !says(common, LogLevel::warning)) return;
  fmt::print(
      stderr,
      "warning: {} of {} fits ended before their tolerance, so that penalties and losses are less exact; "
      "are the columns of very different scales? Leave out --no-standardize if it was given\n",
      counts.unconverged, counts.fits);
}

std::string csv_quoted(const std::string& name) {
  if (name.find_first_of(",\"\n") == std::string::npos) return name;
  std::string result = "\"";
  for (const char c : name) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

}  // namespace bilevel::cli
