#include "cli/job_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/renamed.h"
#include "bilevel/run/json.h"
#include "bilevel/run/shell_word.h"
#include "bilevel/run/stop_signal.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/runs.h"

namespace bilevel::cli {
namespace {

constexpr int64_t largest_config = 1 << 20;

// ---- options from files ----

NamedWords read_json_options(const std::string& job, const std::string& path) {
  Json json = read_json_file(path, largest_config);
  if (json.is_object() && json.contains("command") && json["command"].is_string() &&
      json.contains("options")) {
    if (const auto owner = json["command"].get<std::string>(); owner != job) {
      throw std::invalid_argument(fmt::format("it belongs to `bilevel {}`, not to `bilevel {}`", owner, job));
    }
    if (!json["options"].is_object()) throw std::invalid_argument("'options' must be an object");
    json = current_config(json)["options"];
  }
  return words_of(json);
}

NamedWords read_toml_options(const std::string& path) {
  struct ::stat status {};
  if (::stat(path.c_str(), &status) != 0) throw std::invalid_argument("there is no such file");
  if (status.st_size > largest_config) {
    throw std::invalid_argument(fmt::format("{} bytes, expected at most {}", status.st_size, largest_config));
  }
  NamedWords words;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(path)) {
    if (!item.inputs.empty() && item.name != "++" && item.name != "--") {
      words.emplace_back(field_name(item.name), item.inputs);
    }
  }
  return words;
}

// Those of the job and of the process, unless they were typed.
void give_stored(const std::string& job, OptionsView options, ProcessOptions& process,
                 const NamedWords& stored) {
  OptionsView of_process(process);
  NamedWords of_job, rest;
  for (const auto& option : with_flags_as_named(options, stored)) {
    const bool known = options.find(option.first) != nullptr || of_process.find(option.first) != nullptr;
    if (!known) {
      throw OptionError(fmt::format("option {} is unknown{}; `bilevel {} --help` shows all",
                                    named(option.first), new_name_of(option.first, options), job));
    }
    // A file that came from elsewhere must not choose which run is worked on.
    if (option.first == "resume" || option.first == "config") {
      throw OptionError(fmt::format("option {} is none of a file: type it", named(option.first)));
    }
    (options.find(option.first) != nullptr ? of_job : rest).push_back(option);
  }
  give_rest(options, of_job);
  give_rest(of_process, rest);
}

void take_config(const std::string& job, OptionsView options, ProcessOptions& process) {
  const std::string path = process.config;
  try {
    std::ifstream file(path);
    if (!file) throw std::invalid_argument("there is no such file, or it cannot be opened");
    char first = 0;
    file >> first;
    give_stored(job, options, process, first == '{' ? read_json_options(job, path) : read_toml_options(path));
  } catch (const std::exception& error) {
    throw OptionError(fmt::format("{}: {}", named("config", path), marked_message(error)));
  }
}

// A run goes on as it began: only where it runs and where its files are may change.
void take_resumed(const std::string& job, OptionsView options, ProcessOptions& process) {
  const std::string& folder = process.resume;
  if (!is_run(folder)) {
    throw RunError(
        fmt::format("{}: there is no run.json in it; give the folder of a run", named("resume", folder)));
  }
  try {
    const StoredRun stored = read_stored_run(folder);
    if (stored.job != job) {
      throw std::invalid_argument(
          fmt::format("it belongs to `bilevel {}`, not to `bilevel {}`", stored.job, job));
    }
    const std::vector<std::string> changed =
        changed_fields(options, with_flags_as_named(options, stored.given), stored.effective);
    if (!changed.empty()) {
      std::vector<std::string> names;
      for (const std::string& field : changed) names.push_back(named(field));
      throw OptionError(fmt::format(
          "{} with {}: a run goes on as it began; begin another with {} and what is to be different",
          named("resume", folder), fmt::join(names, ", "), named("config", folder + "/config.json")));
    }
    give_stored(job, options, process, stored.given);
  } catch (const OptionError&) {
    throw;
  } catch (const std::exception& error) {
    throw OptionError(fmt::format("{}: {}", named("resume", folder), error.what()));
  }
  // Another number of threads has other bits.
  if (const Field* threads = options.find("threads");
      threads != nullptr && options.words(*threads).front() == "0") {
    options.give(*threads, {word_of(read_run(folder).machine.threads)});
  }
}

void take_options(const std::string& job, OptionsView options, ProcessOptions& process) {
  if (!process.resume.empty() && !process.out.empty()) {
    throw OptionError(fmt::format("{} with {}: a run goes on in its own folder",
                                  named("resume", process.resume), named("out", process.out)));
  }
  if (!process.resume.empty() && !process.config.empty()) {
    throw OptionError(fmt::format("{} with {}: a run goes on as it began", named("resume", process.resume),
                                  named("config", process.config)));
  }
  if (!process.config.empty()) take_config(job, options, process);
  if (!process.resume.empty()) take_resumed(job, options, process);
}

bool repeats_finished_run(const ProcessOptions& process, const CommonOptions& common) {
  if (process.resume.empty() || read_run(process.resume).status != RunStatus::finished) return false;
  if (says(common, LogLevel::info)) {
    fmt::print(stderr, "the run in {} is finished; this is its summary\n", process.resume);
  }
  if (process.json) {
    fmt::print("{}\n", read_json_file(process.resume + "/summary.json").dump());
  } else {
    show_run(process.resume, false);
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
    if (std::isfinite(at.direction_norm)) text += fmt::format(", hypergradient {:.3g}", at.direction_norm);
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
    if (folder.empty()) return interrupted;  // nothing to go on with
    fmt::print(stderr, "interrupted; the state is saved: go on with `bilevel {} --resume {}`\n", job,
               shell_word(folder));
    return interrupted;
  }
  if (end.status != RunStatus::failed) return success;
  fmt::print(stderr, "bilevel: {}\n", flag_text(end.message));
  return end.cause == EndCause::mathematics ? not_finite : failure;
}

}  // namespace

namespace {

bool is_silent(const std::shared_ptr<ProcessGroup>& group) { return group && group->rank() != 0; }

int run_job(const std::string& job, OptionsView options, ProcessOptions& process,
            const std::function<Shown(RunContext& context)>& work,
            const std::shared_ptr<ProcessGroup>& group) {
  take_options(job, options, process);
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
  listener.opened = [&] { on_signal.emplace(!is_silent(group)); };
  RunContext context({.keep = true,
                      .out = process.out,
                      .resume = process.resume,
                      .save_seconds = process.save_seconds,
                      .group = group},
                     std::move(listener));
  const Shown shown = work(context);
  progress.clear();
  if (is_silent(group)) return silent_exit_code_of(shown.end);
  show(shown, process);
  if (!process.json && shown.end.status != RunStatus::interrupted) {
    if (shown.files.empty()) {
      fmt::print("the run is in {}\n", context.folder_name());
    } else {
      fmt::print("written to {}: {}, summary.json\n", context.folder_name(), fmt::join(shown.files, ", "));
    }
  }
  return exit_code_of(shown.end, job, context.folder_name());
}

}  // namespace

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
    if (!process.json && shown.end.status == RunStatus::finished) {
      fmt::print("\n{} are in {}\n", files, context.folder_name());
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
