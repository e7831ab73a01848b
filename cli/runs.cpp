// `bilevel runs` lists the runs under a folder, `bilevel show` prints one of them.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/run/blas_kernels.h"
#include "bilevel/run/run_folder.h"
#include "bilevel/run/shell_word.h"
#include "cli/commands.h"
#include "cli/job_command.h"
#include "cli/runs.h"

namespace bilevel::cli {
namespace {

constexpr int deepest = 3;            // folders below the one that is listed
constexpr size_t longest_value = 60;  // of an option or a number in text

struct Listed {
  RunFacts facts;
  std::string error;  // of a run.json that cannot be read; the folder is still shown
  Json last = {};     // the last line of its metrics: how far it came
};

std::vector<Listed> find_runs(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<Listed> runs;
  const auto add = [&](const std::string& path) {
    Listed listed;
    listed.facts.folder = path;
    try {
      listed.facts = read_run(path);
    } catch (const std::exception& error) {
      listed.error = error.what();
    }
    runs.push_back(std::move(listed));
  };
  if (is_run(folder)) add(folder);
  std::error_code ignored;
  for (fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, ignored),
       end;
       it != end; it.increment(ignored)) {
    if (it.depth() >= deepest) it.disable_recursion_pending();
    if (it->is_directory(ignored) && is_run(it->path())) add(it->path());
  }
  std::sort(runs.begin(), runs.end(), [](const Listed& a, const Listed& b) {
    return std::tie(a.facts.started, a.facts.folder) < std::tie(b.facts.started, b.facts.folder);
  });
  return runs;
}

Json last_metrics(const std::string& folder) {
  const Metrics metrics = read_metrics(folder);
  return metrics.lines.empty() ? Json(nullptr) : metrics.lines.back();
}

std::string short_text(const Json& value) {
  std::string text = value.is_string()         ? value.get<std::string>()
                     : value.is_number_float() ? fmt::format("{:.6g}", value.get<double>())
                                               : value.dump();
  if (text.size() > longest_value) text = text.substr(0, longest_value - 3) + "...";
  return text;
}

// The measure that says most, in the order in which people ask.
std::string best_known(const Json& line) {
  for (const char* name : {"test_accuracy", "valid_accuracy", "outer_loss", "valid_loss", "train_loss"}) {
    if (line.is_object() && line.contains(name) && line[name].is_number()) {
      return fmt::format("{} {}", name, short_text(line[name]));
    }
  }
  return "";
}

Json facts_json(const RunFacts& f) {
  return {{"folder", f.folder},   {"command", f.command}, {"status", name_of(f.status)},
          {"message", f.message}, {"started", f.started}, {"ended", f.ended},
          {"seed", f.seed}};
}

struct RunsOptions {
  std::string folder = "runs";
  Given given = {};
  static const Fields<RunsOptions>& fields() {
    static const Fields<RunsOptions> table = [] {
      Fields<RunsOptions> f;
      f.add(
           "folder", [](auto& o) -> auto& { return o.folder; }, "folder to look in")
          .first();
      return f;
    }();
    return table;
  }
};
struct RunList {
  std::string missing = {};  // the folder, where there is none
  std::vector<Listed> runs = {};
  Json json = {};
};

RunList list_runs(const RunsOptions& options, RunContext& /*context*/) {
  RunList list{.json = {{"runs", Json::array()}}};
  if (!std::filesystem::is_directory(options.folder)) {
    list.missing = options.folder;
    return list;
  }
  list.runs = find_runs(options.folder);
  for (Listed& run : list.runs) {
    run.last = last_metrics(run.facts.folder);
    Json row = facts_json(run.facts);
    row["last"] = run.last;
    if (!run.error.empty()) row["error"] = run.error;
    list.json["runs"].push_back(std::move(row));
  }
  return list;
}

void print_list(const RunList& list) {
  if (!list.missing.empty()) {
    fmt::print("there is no folder {}: jobs make it, or name the folders of their runs\n", list.missing);
    return;
  }
  size_t width = 6;
  for (const Listed& run : list.runs) width = std::max(width, run.facts.folder.size());
  fmt::print("{:<{}}  {:<9}{:<13}{:<21}{:>6}  {}\n", "folder", width, "command", "status", "started", "step",
             "last");
  for (const Listed& run : list.runs) {
    if (!run.error.empty()) {
      fmt::print("{:<{}}  {}\n", run.facts.folder, width, run.error);
      continue;
    }
    const bool has_step = run.last.is_object() && run.last.contains("step");
    fmt::print("{:<{}}  {:<9}{:<13}{:<21}{:>6}  {}\n", run.facts.folder, width, run.facts.command,
               name_of(run.facts.status), run.facts.started, has_step ? short_text(run.last["step"]) : "-",
               best_known(run.last));
  }
  fmt::print("{} runs\n", list.runs.size());
}

void print_object(const char* title, const Json& object) {
  if (!object.is_object() || object.empty()) return;
  fmt::print("\n{}\n", title);
  for (const auto& [name, value] : object.items()) {
    if (value.is_structured() && value.size() > 8) {
      fmt::print("  {:<24} {} entries\n", name, value.size());
    } else {
      fmt::print("  {:<24} {}\n", name, short_text(value));
    }
  }
}

struct ShowOptions {
  std::string folder;
  Given given = {};
  static const Fields<ShowOptions>& fields() {
    static const Fields<ShowOptions> table = [] {
      Fields<ShowOptions> f;
      f.add(
           "folder", [](auto& o) -> auto& { return o.folder; }, "folder of the run")
          .required()
          .first();
      return f;
    }();
    return table;
  }
};

}  // namespace

WholeRun read_whole_run(const std::string& folder) {
  if (!is_run(folder)) {
    throw std::invalid_argument(
        fmt::format("{}: there is no run.json in it; `bilevel runs` lists the folders of runs", folder));
  }
  WholeRun run{.facts = read_run(folder)};
  run.config = read_json_file(folder + "/config.json");
  run.metrics = read_metrics(folder);
  if (std::filesystem::exists(folder + "/summary.json")) {
    run.summary = read_json_file(folder + "/summary.json");
  }
  const MachineFacts& machine = run.facts.machine;
  run.json = facts_json(run.facts);
  run.json["machine"] = {{"version", machine.version}, {"torch", machine.torch},
                         {"blas", machine.blas},       {"kernels", kernels_named_in(machine.blas)},
                         {"cpu", machine.cpu},         {"threads", machine.threads}};
  run.json["config"] = run.config;
  run.json["metrics"] = run.metrics.lines;
  run.json["summary"] = run.summary;
  return run;
}

void print_run(const WholeRun& run) {
  const RunFacts& facts = run.facts;
  const std::string kernels = kernels_named_in(facts.machine.blas);
  fmt::print("{}: bilevel {}, {}{}\n", facts.folder, facts.command, name_of(facts.status),
             facts.message.empty() ? "" : ": " + facts.message);
  fmt::print("started {}{}, seed {}; bilevel {}, LibTorch {}, {}{}, {} threads\n", facts.started,
             facts.ended.empty() ? "" : ", ended " + facts.ended, facts.seed, facts.machine.version,
             facts.machine.torch, kernels.empty() ? "" : kernels + " kernels, ", facts.machine.cpu,
             facts.machine.threads);
  if (run.config.contains("options")) print_object("options that were given", run.config["options"]);
  if (!run.metrics.lines.empty()) print_object("last record", run.metrics.lines.back());
  print_object("summary", run.summary);
  if (run.metrics.torn > 0) fmt::print("\n{} torn line(s) of metrics.jsonl are left out\n", run.metrics.torn);
  if (facts.status == RunStatus::interrupted || facts.status == RunStatus::killed) {
    fmt::print("\nresume it with: bilevel {} --resume {}\n", facts.command, shell_word(facts.folder));
  }
}

void add_runs_command(CLI::App& app, int& exit_code) {
  add_question<RunsOptions>(app, exit_code,
                            {"runs",
                             "List the runs under a folder and their status",
                             "Examples:\n"
                             "  bilevel runs\n"
                             "  bilevel runs studies --json",
                             {"folder"}},
                            list_runs, print_list);
}

void add_show_command(CLI::App& app, int& exit_code) {
  add_question<ShowOptions>(
      app, exit_code,
      {"show",
       "Print one run: its status, its options and its last numbers",
       "Example:\n"
       "  bilevel show runs/search-20260101-120000-0",
       {"folder"}},
      [](const ShowOptions& options, RunContext& /*context*/) { return read_whole_run(options.folder); },
      print_run);
}

}  // namespace bilevel::cli
