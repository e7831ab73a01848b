#include "cli/job_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <optional>

#include "bilevel/fields/option_text.h"
#include "bilevel/run/json.h"
#include "bilevel/run/shell_word.h"
#include "bilevel/run/stop_signal.h"
#include "cli/flags.h"
#include "cli/help.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/runs.h"
#include "cli/stored_options.h"

namespace bilevel::cli {
namespace {

bool repeats_finished_run(const ProcessOptions& process, const CommonOptions& common) {
  if (process.resume.empty() || read_run(process.resume).status != RunStatus::finished) return false;
  if (says(common, LogLevel::info)) {
    fmt::print(stderr, "the run in {} is finished; this is its summary\n", process.resume);
  }
  if (process.json) {
    fmt::print("{}\n", read_json_file(process.resume + "/summary.json").dump());
  } else {
    print_run(read_whole_run(process.resume));
  }
  return true;
}

// ---- progress and warnings ----

class StepLine {
 public:
  explicit StepLine(Progress& progress) : progress_(progress) {}
  void operator()(const StepProgress& at) {
    if (!progress_.due()) return;
    const double seconds =
        std::max(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(), 1e-9);
    const double rate = static_cast<double>(at.step - at.before) / seconds;
    std::string text = at.total > 0 ? fmt::format("{}: {}/{}", at.job, at.step, at.total)
                                    : fmt::format("{}: {}", at.job, at.step);
    text += rate >= 1 || rate == 0 ? fmt::format(", {:.1f} a second", rate)
                                   : fmt::format(", {:.2f} s each", 1 / rate);
    if (std::isfinite(at.loss)) text += fmt::format(", loss {:.5g}", at.loss);
    if (std::isfinite(at.direction_norm)) text += fmt::format(", direction {:.3g}", at.direction_norm);
    if (!at.more.empty()) text += ", " + at.more;
    if (at.total > at.step && rate > 0) {
      text += fmt::format(", {} left", time_text(static_cast<double>(at.total - at.step) / rate));
    }
    progress_(text);
  }

 private:
  Progress& progress_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

RunContext::Listener listener_of(Progress& progress, StepLine& steps, const CommonOptions& common) {
  return {.progress = [&](const std::string& text) { progress(text); },
          .step = [&](const StepProgress& at) { steps(at); },
          .line = [&](const std::string& text) { progress.line(flag_text(text)); },
          .warning =
              [&progress, common](const std::string& text) {
                if (!says(common, LogLevel::warning)) return;
                progress.clear();
                fmt::print(stderr, "warning: {}\n", flag_text(text));
              },
          .progress_due = [&] { return progress.due(); },
          .interrupted = [] { return stop_requested(); }};
}

void show(const Shown& shown, const ProcessOptions& process) {
  if (process.json) {
    // Names of files and folders may hold bytes that are no UTF-8.
    fmt::print("{}\n", shown.json.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else if (shown.print_text) {
    shown.print_text();
  }
}

// Ranks other than 0 know how the job ended, and leave it to rank 0 to say so.
int silent_exit_code_of(const JobEnd& end) {
  if (end.status == RunStatus::interrupted) return interrupted;
  if (end.status != RunStatus::failed) return success;
  return end.cause == EndCause::mathematics ? not_finite : failure;
}

int exit_code_of(const JobEnd& end, const std::string& job, const std::string& folder) {
  if (end.status == RunStatus::interrupted) {
    if (folder.empty()) return interrupted;  // nothing to resume
    fmt::print(stderr, "interrupted; state saved. Resume with `bilevel {} --resume {}`\n", job,
               shell_word(folder));
    return interrupted;
  }
  if (end.status != RunStatus::failed) return success;
  fmt::print(stderr, "bilevel: {}\n", flag_text(end.message));
  return end.cause == EndCause::mathematics ? not_finite : failure;
}

bool is_silent(const std::shared_ptr<ProcessGroup>& group) { return group && group->rank() != 0; }

int run_job(const std::string& job, OptionsView options, ProcessOptions& process,
            const std::function<Shown(RunContext& context)>& work,
            const std::shared_ptr<ProcessGroup>& group) {
  take_stored_options(job, options, process);
  CommonOptions common = common_options(process);
  if (is_silent(group)) {
    common.quiet = true;
    common.log_level = "error";
  }
  if (!process.resume.empty() && is_silent(group) && read_run(process.resume).status == RunStatus::finished) {
    return success;
  }
  if (repeats_finished_run(process, common)) return success;
  Progress progress(common);
  StepLine steps(progress);
  std::optional<StopSignal> on_signal;  // until there is something to save, a signal ends the process
  RunContext::Listener listener = listener_of(progress, steps, common);
  listener.opening = [&] { on_signal.emplace(!is_silent(group)); };
  RunContext context({.keep = true,
                      .tensorboard = process.tensorboard,
                      .out = process.out,
                      .resume = process.resume,
                      .save_seconds = process.save_seconds,
                      .group = group},
                     std::move(listener));
  const Shown shown = work(context);
  progress.clear();
  if (is_silent(group)) return silent_exit_code_of(shown.end);
  show(shown, process);
  if (!process.json && context.has_folder() && shown.end.status != RunStatus::interrupted) {
    if (shown.files.empty()) {
      fmt::print("the run is in {}\n", context.folder_name());
    } else {
      fmt::print("written to {}: {}, summary.json\n", context.folder_name(), fmt::join(shown.files, ", "));
    }
  }
  return exit_code_of(shown.end, job, context.folder_name());
}

}  // namespace

CLI::App* add_command(CLI::App& app, const CommandText& text, const std::vector<OptionsView>& tables,
                      std::function<void()> act) {
  CLI::App* command = app.add_subcommand(text.name, text.summary);
  command->footer(text.footer);
  const auto help = add_help_flags(*command);
  for (const OptionsView& table : tables) {
    add_flags(*command, table, *help, text.positional);
    help->hold(table, text.positional);
  }
  if (!text.out.empty()) command->get_option("--out")->description(text.out);
  command->callback([command, act = std::move(act)] {
    for (const CLI::App* below : command->get_subcommands()) {
      if (!below->get_name().empty()) return;
    }
    act();
  });
  return command;
}

int run_in_context(const std::string& job, OptionsView options, ProcessOptions& process,
                   const std::function<Shown(RunContext& context)>& work) {
  return run_ranked(process.group, process.given, [&](const std::shared_ptr<ProcessGroup>& group) {
    return run_job(job, options, process, work, group);
  });
}

int run_with_files(const KeptOptions& kept, const std::string& files,
                   const std::function<Shown(RunContext& context)>& work) {
  const ProcessOptions& process = kept.process;
  return run_ranked(process.group, kept.given, [&](const std::shared_ptr<ProcessGroup>& group) {
    CommonOptions common = common_options(process);
    if (is_silent(group)) {
      common.quiet = true;
      common.log_level = "error";
    }
    Progress progress(common);
    StepLine steps(progress);
    RunContext context({.keep = true, .out = process.out, .group = group},
                       listener_of(progress, steps, common));
    const Shown shown = work(context);
    progress.clear();
    if (is_silent(group)) return silent_exit_code_of(shown.end);
    show(shown, process);
    if (!process.json && context.has_folder() && shown.end.status == RunStatus::finished) {
      if (files.empty()) {
        fmt::print("the run is in {}\n", context.folder_name());
      } else {
        fmt::print("\n{} are in {}\n", files, context.folder_name());
      }
    }
    return exit_code_of(shown.end, "", "");
  });
}

int run_without_folder(const ProcessOptions& process, const std::function<Shown(RunContext& context)>& work) {
  const CommonOptions common = common_options(process);
  Progress progress(common);
  StepLine steps(progress);
  RunContext context({}, listener_of(progress, steps, common));
  const Shown shown = work(context);
  progress.clear();
  show(shown, process);
  return exit_code_of(shown.end, "", "");
}

}  // namespace bilevel::cli
