#include "cli/run_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/run/machine.h"
#include "bilevel/run/shell_word.h"
#include "cli/runs.h"

namespace bilevel::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t largest_config = 1 << 20;

// Of the one process, not of what it computes.
const std::set<std::string>& not_stored() {
  static const std::set<std::string> names = {"--help",  "--resume", "--out",       "--json",
                                              "--quiet", "--config", "--log-level", "--save-every"};
  return names;
}

// With its dashes; to CLI11, an option that no help shows has no name.
std::string stored_name(const CLI::Option& option) {
  const bool hidden = option.get_name().empty() && !option.get_lnames().empty();
  return hidden ? "--" + option.get_lnames().front() : option.get_name();
}

// Those of its groups, too, which are nameless commands to CLI11.
void for_each_option(CLI::App& app, const std::function<void(CLI::Option&)>& act) {
  for (CLI::Option* option : app.get_options()) {
    const std::string name = stored_name(*option);
    if (!name.empty() && not_stored().count(name) == 0) act(*option);
  }
  for (CLI::App* group : app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
    for_each_option(*group, act);
  }
}

// The value that the option's variable has now, as CLI11 would show it as a default; empty where it cannot.
std::string current_value(CLI::Option& option) {
  const std::string shown = option.get_default_str();
  option.capture_default_str();
  std::string value = option.get_default_str();
  option.default_str(shown);
  return value;
}

std::vector<std::string> values_of(const Json& value) {
  const auto text = [](const Json& one) { return one.is_string() ? one.get<std::string>() : one.dump(); };
  std::vector<std::string> values;
  if (value.is_array()) {
    for (const Json& one : value) values.push_back(text(one));
  } else if (!value.is_null()) {
    values.push_back(text(value));
  }
  return values;
}

// Names with their dashes, and values.
using Stored = std::vector<std::pair<std::string, std::vector<std::string>>>;

std::string with_dashes(const std::string& name) { return name.starts_with("--") ? name : "--" + name; }

Stored read_json_options(const CLI::App& command, const std::string& path) {
  Json json = read_json_file(path, largest_config);
  if (!json.is_object()) throw std::invalid_argument("expected an object of options");
  if (json.contains("command") && json["command"].is_string() && json.contains("options")) {
    if (const auto owner = json["command"].get<std::string>(); owner != command.get_name()) {
      throw std::invalid_argument(
          fmt::format("it belongs to `bilevel {}`, not to `bilevel {}`", owner, command.get_name()));
    }
    json = json["options"];
    if (!json.is_object()) throw std::invalid_argument("'options' must be an object");
  }
  Stored stored;
  for (const auto& [name, value] : json.items()) stored.emplace_back(with_dashes(name), values_of(value));
  return stored;
}

Stored read_toml_options(const std::string& path) {
  struct ::stat status {};
  if (::stat(path.c_str(), &status) != 0) throw std::invalid_argument("there is no such file");
  if (status.st_size > largest_config) {
    throw std::invalid_argument(fmt::format("{} bytes, expected at most {}", status.st_size, largest_config));
  }
  Stored stored;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(path)) {
    if (!item.inputs.empty() && item.name != "++" && item.name != "--") {
      stored.emplace_back(with_dashes(item.name), item.inputs);
    }
  }
  return stored;
}

// A resumed run may be told where it runs and where its files are now, which data_digest() compares.
const std::set<std::string>& may_change() {
  static const std::set<std::string> names = {
      "--threads",     "--device", "--data-dir",     "--data",           "--labels",        "--test-images",
      "--test-labels", "--train",  "--train-labels", "--test",           "--valid-labels",  "--valid",
      "--features",    "--split",  "--benchmark",    "--train-features", "--valid-features"};
  return names;
}

void require_as_it_began(CLI::App& command, const std::string& folder) {
  const Json config = read_json_file(folder + "/config.json", largest_config);
  std::vector<std::string> others;
  for_each_option(command, [&](CLI::Option& option) {
    const std::string name = stored_name(option);
    if (option.count() == 0 || option.results().empty() || may_change().count(name) > 0) return;
    const auto is_in = [&](const char* part) {
      return config.contains(part) && config[part].is_object() && config[part].contains(name) &&
             values_of(config[part][name]) == option.results();
    };
    if (is_in("options")) return;
    if (is_in("effective")) {
      // The run found this value by itself and finds it again, with the digits that `effective` leaves out.
      option.clear();
      return;
    }
    others.push_back(name);
  });
  if (!others.empty()) {
    throw std::invalid_argument(fmt::format(
        "--resume {} with {}: a run goes on as it began; begin another with --config {}/config.json and what "
        "is to be different",
        folder, fmt::join(others, ", "), folder));
  }
}

void give(CLI::App& command, const Stored& stored) {
  for (const auto& [name, values] : stored) {
    CLI::Option* option = command.get_option_no_throw(name);
    if (option == nullptr) {
      throw std::invalid_argument(
          fmt::format("option {} is unknown; `bilevel {} --help` shows all", name, command.get_name()));
    }
    // A file that came from elsewhere must not choose which run is worked on.
    if (name == "--resume" || name == "--config") {
      throw std::invalid_argument(fmt::format("option {} is none of a file: type it", name));
    }
    if (option->count() > 0 || values.empty()) continue;
    for (const std::string& value : values) option->add_result(value);
    option->run_callback();
  }
}

void take_file(CLI::App& command, const std::string& path, const std::string& option) {
  try {
    std::ifstream file(path);
    if (!file) throw std::invalid_argument("there is no such file, or it cannot be opened");
    char first = 0;
    file >> first;
    Stored stored = first == '{' ? read_json_options(command, path) : read_toml_options(path);
    // Why another run took its method is not why this one does.
    if (option == "--config") std::erase_if(stored, [](const auto& o) { return o.first == "--auto-choice"; });
    give(command, stored);
  } catch (const std::exception& error) {
    throw std::invalid_argument(fmt::format("{} {}: {}", option, path, error.what()));
  }
}

}  // namespace

void add_run_options(CLI::App& command, RunFlags& f) {
  auto* run = command.add_option_group("run");
  run->add_option("--out", f.out, "folder of the run; runs/COMMAND-DATE-SEED by default");
  run->add_option("--resume", f.resume, "goes on with what was stopped in this folder, to the same bits");
  run->add_option("--config", f.config,
                  "options from a file: a run's config.json, other JSON or TOML; typed ones come first");
  run->add_option("--save-every", f.save_seconds, "seconds between two checkpoints")->capture_default_str();
}

void take_options(CLI::App& command, const RunFlags& f, CommonOptions& common) {
  if (!f.resume.empty() && !f.out.empty()) {
    throw std::invalid_argument(
        fmt::format("--resume {} with --out {}: a run goes on in its own folder", f.resume, f.out));
  }
  if (!f.resume.empty() && !f.config.empty()) {
    throw std::invalid_argument(
        fmt::format("--resume {} with --config {}: a run goes on as it began", f.resume, f.config));
  }
  if (!f.config.empty()) take_file(command, f.config, "--config");
  if (f.resume.empty()) return;
  if (!is_run(f.resume)) {
    throw std::runtime_error(
        fmt::format("--resume {}: there is no run.json in it; give the folder of a run", f.resume));
  }
  require_as_it_began(command, f.resume);
  take_file(command, f.resume + "/config.json", "--resume");
  // Another number of threads has other bits.
  if (common.threads == 0) common.threads = read_run(f.resume).machine.threads;
}

bool repeats_finished_run(const RunFlags& f, const CommonOptions& common) {
  if (f.resume.empty() || read_run(f.resume).status != RunStatus::finished) return false;
  if (says(common, LogLevel::info)) {
    fmt::print(stderr, "the run in {} is finished; this is its summary\n", f.resume);
  }
  if (common.json) {
    fmt::print("{}\n", read_json_file(f.resume + "/summary.json").dump());
  } else {
    show_run(f.resume, false);
  }
  return true;
}

std::string default_run_folder(const std::string& command, uint64_t seed) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y%m%d-%H%M%S", &local);
  const std::string base = fmt::format("runs/{}-{}-{}", command, date.data(), seed);
  std::string folder = base;
  for (int i = 2; std::filesystem::exists(folder); ++i) folder = fmt::format("{}-{}", base, i);
  return folder;
}

Json options_json(CLI::App& command) {
  Json given = Json::object(), effective = Json::object();
  for_each_option(command, [&](CLI::Option& option) {
    const std::string name = stored_name(option);
    if (option.count() > 0 && !option.results().empty()) {
      given[name] = option.results();
      effective[name] =
          option.results().size() == 1 ? Json(option.results().front()) : Json(option.results());
    } else if (const std::string value = current_value(option); !value.empty()) {
      effective[name] = value;
    }
  });
  return {{"command", command.get_name()},
          {"version", machine_facts().version},
          {"options", given},
          {"effective", effective}};
}

void set_option(CLI::App& command, const std::string& name, const std::string& value) {
  CLI::Option* option = command.get_option(name);
  option->clear();
  option->add_result(value);
  option->run_callback();
}

RunFolder open_run(CLI::App& command, const RunFlags& f, uint64_t seed) {
  if (!f.resume.empty()) return RunFolder::resume(f.resume);
  return RunFolder::create(f.out.empty() ? default_run_folder(command.get_name(), seed) : f.out,
                           {.command = command.get_name(), .seed = seed, .config = options_json(command)});
}

std::optional<Checkpoint> load_run(RunFolder& run, const RunFlags& f, const CommonOptions& common) {
  if (f.resume.empty()) return std::nullopt;
  std::optional<Checkpoint> checkpoint = run.load();
  if (!checkpoint || !says(common, LogLevel::warning)) return checkpoint;
  if (!checkpoint->warning.empty()) fmt::print(stderr, "warning: {}\n", checkpoint->warning);
  for (const std::string& difference : differences(checkpoint->machine, machine_facts())) {
    fmt::print(stderr, "warning: {}\n", difference);
  }
  return checkpoint;
}

void say_interrupted(const CLI::App& command, const RunFolder& run) {
  fmt::print(stderr, "interrupted; the state is saved: go on with `bilevel {} --resume {}`\n",
             command.get_name(), shell_word(run.path()));
}

}  // namespace bilevel::cli
