// `bilevel list`: the problems, methods, algorithms and inner optimisers that other commands take by name.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "bilevel/algorithms/registry.h"
#include "bilevel/core/inner.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/jobs/problem_choice.h"
#include "cli/commands.h"

namespace bilevel::cli {
namespace {

void print_json() {
  nlohmann::ordered_json out;
  out["problems"] = nlohmann::json::array();
  for (const auto& row : all_problem_rows())
    out["problems"].push_back({{"name", row.name}, {"summary", row.summary}});
  out["methods"] = nlohmann::json::array();
  for (const auto& row : estimator_rows())
    out["methods"].push_back({{"name", row.name}, {"summary", row.summary}});
  out["algorithms"] = nlohmann::json::array();
  for (const auto& row : algorithm_rows())
    out["algorithms"].push_back({{"name", row.name}, {"summary", row.summary}});
  out["inner_optimizers"] = inner_optimizer_names();
  fmt::print("{}\n", out.dump());
}

void print_text() {
  fmt::print("Problems (--problem)\n");
  for (const auto& row : all_problem_rows()) fmt::print("  {:<20}{}\n", row.name, row.summary);
  fmt::print("\nHypergradients (--methods)\n");
  for (const auto& row : estimator_rows()) fmt::print("  {:<20}{}\n", row.name, row.summary);
  fmt::print("\nAlgorithms (--algorithm)\n");
  for (const auto& row : algorithm_rows()) fmt::print("  {:<20}{}\n", row.name, row.summary);
  fmt::print("\nInner optimisers (--inner-optimizer)\n");
  for (const auto& name : inner_optimizer_names()) fmt::print("  {}\n", name);
}

}  // namespace

void add_list_command(CLI::App& app, int& /*exit_code*/) {
  CLI::App* command =
      app.add_subcommand("list", "Problems, hypergradients, algorithms and optimisers by name");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print one JSON object on stdout and nothing else");
  command->callback([json] { *json ? print_json() : print_text(); });
}

}  // namespace bilevel::cli
