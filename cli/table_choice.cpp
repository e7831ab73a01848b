#include "cli/table_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "cli/algorithm_options.h"
#include "cli/auto_method.h"

namespace bilevel::cli {
namespace {

bool is_given(const CLI::App& command, const std::string& option) {
  const CLI::Option* found = command.get_option_no_throw(option);
  return found != nullptr && found->count() > 0;
}

}  // namespace

void add_table_options(CLI::App& command, TableFlags& flags, const std::string& way,
                       const std::string& other) {
  auto* table = command.add_option_group("tables");
  table
      ->add_option(
          "--by", flags.by,
          fmt::format("{} (tables, unless an option of algorithms is given), {}, or auto", way, other))
      ->check(CLI::IsMember({std::string("auto"), way, other}))
      ->capture_default_str();
  table->add_option("--folds", flags.folds, fmt::format("--by {}: rows are held out in so many parts", way))
      ->capture_default_str();
  table->add_flag("--no-standardize", flags.no_standardize,
                  fmt::format("--by {}: take the columns' scales as they are", way));
}

std::vector<std::string> given_algorithm_options(const CLI::App& command,
                                                 const std::vector<std::string>& more) {
  CLI::App algorithms;
  AlgorithmFlags flags;
  AutoFlags automatic;
  add_algorithm_options(algorithms, flags);
  add_auto_options(algorithms, automatic);
  std::vector<std::string> given;
  const auto look = [&](const CLI::App& group) {
    for (const CLI::Option* option : group.get_options()) {
      if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
      const std::string name = "--" + option->get_lnames().front();
      if (is_given(command, name)) given.push_back(name);
    }
  };
  const CLI::App& all = algorithms;
  look(all);
  for (const CLI::App* group : all.get_subcommands([](const CLI::App*) { return true; })) look(*group);
  for (const std::string& name : more) {
    if (is_given(command, name)) given.push_back(name);
  }
  return given;
}

bool means_table(const CLI::App& command, const TableFlags& flags, const std::string& way,
                 const std::string& other, const std::vector<std::string>& of_other, bool possible) {
  const std::vector<std::string> given = given_algorithm_options(command, of_other);
  if (flags.by == way) {
    if (!given.empty()) {
      throw std::invalid_argument(fmt::format("--by {} does not read {}: leave it out, or take --by {}", way,
                                              fmt::join(given, ", "), other));
    }
    return true;
  }
  if (flags.by == "auto" && possible && given.empty()) return true;
  for (const char* option : {"--folds", "--no-standardize"}) {
    if (!is_given(command, option)) continue;
    throw std::invalid_argument(
        fmt::format("{} is of --by {}, and {} takes --by {}: leave one of them out", option, way,
                    !given.empty() ? fmt::format("{}", fmt::join(given, ", ")) : "this command line", other));
  }
  return false;
}

void refuse_folds(int64_t folds, int64_t rows) {
  if (folds <= rows) return;
  throw std::invalid_argument(fmt::format(
      "--folds {}: must be at most {}, the rows of --train; give fewer folds or more rows", folds, rows));
}

}  // namespace bilevel::cli
