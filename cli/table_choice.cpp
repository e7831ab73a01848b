#include "cli/table_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/run/run_folder.h"
#include "bilevel/tables/scaled_table.h"
#include "cli/algorithm_options.h"
#include "cli/auto_method.h"
#include "cli/json.h"
#include "cli/run_options.h"

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

void keep_earlier_way(CLI::App& command, const std::string& resume, const std::string& other) {
  if (resume.empty()) return;
  const Json config = read_json_file(resume + "/config.json");
  if (config.contains("effective") && !config["effective"].contains("--by")) {
    set_option(command, "--by", other);
  }
}

bool is_small_enough(const std::vector<const Features*>& sets, int64_t classes) {
  return std::all_of(sets.begin(), sets.end(), [&](const Features* set) {
    const int64_t rows = set->rows();
    return rows <= largest_table / std::max<int64_t>(set->columns(), 1) &&
           rows <= largest_table / std::max<int64_t>(classes, 1);
  });
}

void refuse_folds(int64_t folds, const Features& train) {
  const int64_t rows = train.rows();
  if (folds > rows) {
    throw std::invalid_argument(fmt::format(
        "--folds {}: must be at most {}, the rows of --train; give fewer folds or more rows", folds, rows));
  }
  const int64_t numbers = std::max<int64_t>(rows * train.columns(), 1);
  const int64_t most = std::max(TableFlags{}.folds, TableFlags{}.folds * largest_table / numbers);
  if (folds > most) {
    throw std::invalid_argument(
        fmt::format("--folds {}: every fold keeps a copy of the table; a table of this size takes at most {}",
                    folds, most));
  }
}

}  // namespace bilevel::cli
