// `bilevel list`: the problems, methods, algorithms and inner optimisers that other commands take by name.

#include <fmt/format.h>

#include "bilevel/algorithms/registry.h"
#include "bilevel/core/inner.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/jobs/problem_choice.h"
#include "bilevel/run/json.h"
#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

struct ListOptions {
  Given given = {};
  static const Fields<ListOptions>& fields() {
    static const Fields<ListOptions> none;
    return none;
  }
};
struct Names {
  Json json = {};
};

template <typename Rows>
Json names_and_summaries(const Rows& rows) {
  Json out = Json::array();
  for (const auto& row : rows) out.push_back({{"name", row.name}, {"summary", row.summary}});
  return out;
}

Names list_names(const ListOptions& /*options*/, RunContext& /*context*/) {
  Names names;
  names.json["problems"] = names_and_summaries(all_problem_rows());
  names.json["methods"] = names_and_summaries(estimator_rows());
  names.json["algorithms"] = names_and_summaries(algorithm_rows());
  names.json["inner_optimizers"] = inner_optimizer_names();
  return names;
}

void print_names(const Names& /*names*/) {
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

void add_list_command(CLI::App& app, int& exit_code) {
  add_question<ListOptions>(app, exit_code,
                            {"list", "List problems, hypergradients, algorithms and optimisers by name",
                             "Examples:\n"
                             "  bilevel list\n"
                             "  bilevel list --json"},
                            list_names, print_names);
}

}  // namespace bilevel::cli
