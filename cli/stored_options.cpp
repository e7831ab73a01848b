#include "cli/stored_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "bilevel/data/file_error.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/fields/renamed.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel::cli {
namespace {

constexpr int64_t largest_config = 1 << 20;

NamedWords read_json_options(const std::string& job, const std::string& path) {
  Json json = read_json_file(path, largest_config);
  if (!json.is_object()) {
    throw std::invalid_argument(
        "expected an object of options, {\"iterations\": 100}, as the config.json of a run has");
  }
  if (json.contains("command") && json["command"].is_string() && json.contains("options")) {
    if (const auto owner = json["command"].get<std::string>(); owner != job) {
      throw std::invalid_argument(fmt::format("it belongs to `bilevel {}`, not to `bilevel {}`", owner, job));
    }
    if (!json["options"].is_object()) throw std::invalid_argument("'options' must be an object");
    json = current_config(json)["options"];
  }
  return words_of(json);
}

// What CLI11 passes over without a word: an option without a value, and the name of a section that does not
// end.
void require_toml_lines(const std::string& path) {
  std::ifstream file(path);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const size_t first = line.find_first_not_of(" \t"), last = line.find_last_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#' || line[first] == ';') continue;
    const std::string text = line.substr(first, last - first + 1);
    if (text.ends_with('=')) {
      throw std::invalid_argument(
          fmt::format("line {}: `{}` has no value; write one, or leave the line out", number, text));
    }
    if (text.starts_with('[') && !text.ends_with(']')) {
      throw std::invalid_argument(fmt::format(
          "line {}: `{}` does not end with ]; options are lines such as `iterations = 100`", number, text));
    }
  }
}

NamedWords read_toml_options(const std::string& path) {
  struct ::stat status {};
  if (::stat(path.c_str(), &status) != 0) throw std::invalid_argument("there is no such file");
  if (status.st_size > largest_config) {
    throw std::invalid_argument(fmt::format("{} bytes, expected at most {}", status.st_size, largest_config));
  }
  require_toml_lines(path);
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
      throw OptionError(
          fmt::format("{} cannot be set in a config file; pass it on the command line", named(option.first)));
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
    const bool is_json = first == '{' || path.ends_with(".json");
    give_stored(job, options, process, is_json ? read_json_options(job, path) : read_toml_options(path));
  } catch (const FileError& error) {
    throw OptionError(fmt::format("{}: {}; correct the file, or start from a copy of a run's config.json",
                                  named("config", path), error.cause()));
  } catch (const std::exception& error) {
    throw OptionError(fmt::format("{}: {}", named("config", path), marked_message(error)));
  }
}

// A resumed run keeps its options: only where it runs and where its files are may change.
void take_resumed(const std::string& job, OptionsView options, ProcessOptions& process) {
  const std::string& folder = process.resume;
  require_run_to_resume(folder);
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
          "{} with {}: a resumed run keeps its options. To change them, start a new run with {} and the "
          "changed options",
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

}  // namespace

void take_stored_options(const std::string& job, OptionsView options, ProcessOptions& process) {
  if (!process.resume.empty() && !process.out.empty()) {
    throw OptionError(fmt::format("{} with {}: a resumed run stays in its own folder",
                                  named("resume", process.resume), named("out", process.out)));
  }
  if (!process.resume.empty() && !process.config.empty()) {
    throw OptionError(fmt::format("{} with {}: a resumed run keeps its options",
                                  named("resume", process.resume), named("config", process.config)));
  }
  if (!process.config.empty()) take_config(job, options, process);
  if (!process.resume.empty()) take_resumed(job, options, process);
}

}  // namespace bilevel::cli
