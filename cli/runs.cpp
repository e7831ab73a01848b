// `bilevel runs` lists the runs under a folder, `bilevel show` prints one of them.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/run/blas_kernels.h"
#include "bilevel/run/run_folder.h"
#include "bilevel/run/shell_word.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/runs.h"

namespace bilevel::cli {
namespace {

constexpr int deepest = 3;            // folders below the one that is listed
constexpr size_t longest_value = 60;  // of an option or a number in text

struct Listed {
  RunFacts facts;
  std::string error;  // of a run.json that cannot be read; the folder is still shown
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

// How far it came: the last line of its metrics.
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

void list_runs(const std::string& folder, bool json) {
  if (!std::filesystem::is_directory(folder)) {
    if (json) {
      fmt::print("{}\n", Json({{"runs", Json::array()}}).dump());
      return;
    }
    fmt::print("there is no folder {}: long commands make it, or say where their runs are\n", folder);
    return;
  }
  const std::vector<Listed> runs = find_runs(folder);
  if (json) {
    Json out = {{"runs", Json::array()}};
    for (const Listed& run : runs) {
      Json row = facts_json(run.facts);
      row["last"] = last_metrics(run.facts.folder);
      if (!run.error.empty()) row["error"] = run.error;
      out["runs"].push_back(std::move(row));
    }
    fmt::print("{}\n", out.dump());
    return;
  }
  size_t width = 6;
  for (const Listed& run : runs) width = std::max(width, run.facts.folder.size());
  fmt::print("{:<{}}  {:<9}{:<13}{:<21}{:>6}  {}\n", "folder", width, "command", "status", "started", "step",
             "last");
  for (const Listed& run : runs) {
    if (!run.error.empty()) {
      fmt::print("{:<{}}  {}\n", run.facts.folder, width, run.error);
      continue;
    }
    const Json last = last_metrics(run.facts.folder);
    const bool has_step = last.is_object() && last.contains("step");
    fmt::print("{:<{}}  {:<9}{:<13}{:<21}{:>6}  {}\n", run.facts.folder, width, run.facts.command,
               name_of(run.facts.status), run.facts.started, has_step ? short_text(last["step"]) : "-",
               best_known(last));
  }
  fmt::print("{} runs\n", runs.size());
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

}  // namespace

void show_run(const std::string& folder, bool json) {
  if (!is_run(folder)) {
    throw std::invalid_argument(
        fmt::format("{}: there is no run.json in it; `bilevel runs` lists the folders of runs", folder));
  }
  const RunFacts facts = read_run(folder);
  const Json config = read_json_file(folder + "/config.json");
  const Metrics metrics = read_metrics(folder);
  const bool ended = std::filesystem::exists(folder + "/summary.json");
  const Json summary = ended ? read_json_file(folder + "/summary.json") : Json(nullptr);
  if (json) {
    Json out = facts_json(facts);
    out["machine"] = {{"version", facts.machine.version}, {"torch", facts.machine.torch},
                      {"blas", facts.machine.blas},       {"kernels", kernels_named_in(facts.machine.blas)},
                      {"cpu", facts.machine.cpu},         {"threads", facts.machine.threads}};
    out["config"] = config;
    out["metrics"] = metrics.lines;
    out["summary"] = summary;
    fmt::print("{}\n", out.dump());
    return;
  }
  const std::string kernels = kernels_named_in(facts.machine.blas);
  fmt::print("{}: bilevel {}, {}{}\n", folder, facts.command, name_of(facts.status),
             facts.message.empty() ? "" : ": " + facts.message);
  fmt::print("started {}{}, seed {}; bilevel {}, LibTorch {}, {}{}, {} threads\n", facts.started,
             facts.ended.empty() ? "" : ", ended " + facts.ended, facts.seed, facts.machine.version,
             facts.machine.torch, kernels.empty() ? "" : kernels + " kernels, ", facts.machine.cpu,
             facts.machine.threads);
  if (config.contains("options")) print_object("options that were given", config["options"]);
  if (!metrics.lines.empty()) print_object("last record", metrics.lines.back());
  print_object("summary", summary);
  if (metrics.torn > 0) fmt::print("\n{} torn line(s) of metrics.jsonl are left out\n", metrics.torn);
  if (facts.status == RunStatus::interrupted || facts.status == RunStatus::killed) {
    fmt::print("\nit can go on: bilevel {} --resume {}\n", facts.command, shell_word(folder));
  }
}

void add_runs_command(CLI::App& app, int& /*exit_code*/) {
  struct Options {
    std::string folder = "runs";
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("runs", "List the runs under a folder, and how they stand");
  command->add_option("folder", options->folder, "where to look")->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON object on stdout and nothing else");
  command->callback([options] { list_runs(options->folder, options->json); });
}

void add_show_command(CLI::App& app, int& /*exit_code*/) {
  struct Options {
    std::string folder;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("show", "Print one run: how it stands, its options, its last numbers");
  command->add_option("folder", options->folder, "of the run")->required();
  command->add_flag("--json", options->json, "print one JSON object on stdout and nothing else");
  command->callback([options] { show_run(options->folder, options->json); });
}

}  // namespace bilevel::cli
