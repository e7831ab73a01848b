#include "cli/run_folder.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <vector>

#include "bilevel/data/write_file.h"

namespace bilevel::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of the one run, not of what it computes.
const std::set<std::string>& not_stored() {
  static const std::set<std::string> names = {"--help", "--resume", "--out", "--json", "--quiet", "--config"};
  return names;
}

// Those of its groups, too, which are nameless commands to CLI11.
void collect_options(const CLI::App& app, Json& options) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || option->results().empty() || not_stored().count(name) > 0) continue;
    options[name] = option->results();
  }
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
    collect_options(*group, options);
  }
}

}  // namespace

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

void save_options(const CLI::App& command, const std::string& folder) {
  Json options = Json::object();
  collect_options(command, options);
  const Json config = {{"command", command.get_name()}, {"options", options}};
  write_file(folder + "/config.json", config.dump(2) + "\n");
}

void load_options(CLI::App& command, const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error(
        fmt::format("--resume {}: there is no config.json in it; give the folder of a run", folder));
  }
  Json config;
  try {
    config = Json::parse(file);
    if (config.at("command").get<std::string>() != command.get_name()) {
      throw std::runtime_error(
          fmt::format("it belongs to `bilevel {}`", config.at("command").get<std::string>()));
    }
    for (const auto& [name, values] : config.at("options").items()) {
      CLI::Option* option = command.get_option(name);  // throws where there is none
      if (option->count() > 0) continue;
      for (const std::string& value : values.get<std::vector<std::string>>()) option->add_result(value);
      option->run_callback();
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("--resume: {} cannot be used: {}", path, error.what()));
  }
}

}  // namespace bilevel::cli
