#pragma once
// A job of the library as a command: its field table becomes flags, its RunContext writes a folder, shows
// progress on stderr and is interrupted by signals.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/run/run_context.h"
#include "cli/process_options.h"

namespace CLI {
class App;
}

namespace bilevel::cli {

struct CommandText {
  std::string name, summary, footer;
  std::vector<std::string> positional = {};  // fields that are typed without their flags
  std::string out = {};                      // help of --out, where it is not that of any job
};

// A command with the flags of these field tables. `act`, which keeps the options alive, is called where it is
// chosen, and not a command below it.
CLI::App* add_command(CLI::App& app, const CommandText& text, const std::vector<OptionsView>& tables,
                      std::function<void()> act);

// Runs a job in a context made of what the process was told, after the options of a configuration file or of
// the resumed run are in place. A run that is finished is shown again, and `work` is not called. `work`
// returns how it ended and what to print as text; its JSON is printed in its place where that was asked for.
// Returns the exit code.
struct Shown {
  JobEnd end = {};
  nlohmann::ordered_json json = {};
  std::function<void()> print_text = {};
  std::vector<std::string> files = {};  // of the folder, to be named behind the text
};
int run_in_context(const std::string& job, OptionsView options, ProcessOptions& process,
                   const std::function<Shown(RunContext& context)>& work);
// For jobs that keep no run.
int run_without_folder(const ProcessOptions& process, const std::function<Shown(RunContext& context)>& work);
// For jobs that keep `files` in a folder and cannot be resumed: a signal ends the process.
int run_with_files(const KeptOptions& kept, const std::string& files,
                   const std::function<Shown(RunContext& context)>& work);

template <typename Result>
std::vector<std::string> files_of(const Result& result) {
  if constexpr (requires { result.files; }) return result.files;
  return {};
}

// A command that keeps a run. `run(options, context)` gives a result with `end` and `json`, which
// `print(result)` shows as text.
template <typename Options, typename Process = ProcessOptions, typename Run, typename Print>
void add_job(CLI::App& app, int& exit_code, const CommandText& text, Run run, Print print) {
  const auto options = std::make_shared<Options>();
  const auto process = std::make_shared<Process>();
  add_command(app, text, {OptionsView(*options), OptionsView(*process)}, [=, &exit_code, name = text.name] {
    exit_code = run_in_context(name, OptionsView(*options), *process, [&](RunContext& context) {
      const auto result = std::make_shared<decltype(run(*options, context))>(run(*options, context));
      return Shown{.end = result->end,
                   .json = result->json,
                   .print_text = [=] { print(*result); },
                   .files = files_of(*result)};
    });
  });
}

// A command that answers and keeps no run.
template <typename Options, typename Run, typename Print>
CLI::App* add_question(CLI::App& app, int& exit_code, const CommandText& text, Run run, Print print) {
  const auto options = std::make_shared<Options>();
  const auto output = std::make_shared<OutputOptions>();
  return add_command(app, text, {OptionsView(*options), OptionsView(*output)}, [=, &exit_code] {
    exit_code = run_without_folder(output->process, [&](RunContext& context) {
      const auto result = std::make_shared<decltype(run(*options, context))>(run(*options, context));
      Shown shown{.json = result->json, .print_text = [=] { print(*result); }};
      if constexpr (requires { result->end; }) shown.end = result->end;
      return shown;
    });
  });
}

// A command that answers and keeps `files` in a folder: "runs.csv and summary.json"; empty: those of any run.
template <typename Options, typename Run, typename Print>
void add_kept_question(CLI::App& app, int& exit_code, const CommandText& text, const std::string& files,
                       Run run, Print print) {
  const auto options = std::make_shared<Options>();
  const auto kept = std::make_shared<KeptOptions>();
  CommandText with_files = text;
  with_files.out = (files.empty() ? "folder of the run" : "folder for " + files) + "; default: runs/" +
                   text.name + "-DATE-SEED";
  add_command(app, with_files, {OptionsView(*options), OptionsView(*kept)}, [=, &exit_code] {
    exit_code = run_with_files(*kept, files, [&](RunContext& context) {
      const auto result = std::make_shared<decltype(run(*options, context))>(run(*options, context));
      return Shown{.end = result->end, .json = result->json, .print_text = [=] { print(*result); }};
    });
  });
}

}  // namespace bilevel::cli
