// `bilevel query`: what trained cells reached, from the tables of NAS-Bench-201 and NAS-Bench-101.

#include "bilevel/jobs/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

std::string value_text(const std::string& column, double value) {
  if (column == "params") return fmt::format("{:.0f}", value);
  return fmt::format(fmt::runtime(column == "params_m" ? "{:.6f}" : "{:.4f}"), value);
}

void print_one(const QueryJobResult& result) {
  const nas::BenchmarkEntry& entry = result.entries.front();
  if (!entry.genotype.empty()) fmt::print("{}\n", entry.genotype);
  if (!entry.hash.empty()) fmt::print("graph {}\nhash  {}\n", entry.graph, entry.hash);
  fmt::print("\n{:<18}{:>12}{:>10}{:>10}\n", "", "value", "best", "regret");
  for (const auto& [column, value] : entry.values) {
    const auto regret = std::find_if(entry.regret.begin(), entry.regret.end(),
                                     [&, name = column](const auto& pair) { return pair.first == name; });
    fmt::print("{:<18}{:>12}", column, value_text(column, value));
    if (regret != entry.regret.end()) {
      fmt::print("{:>10.4f}{:>10.4f}", result.optima.at(column), regret->second);
    }
    fmt::print("\n");
  }
}

void print_many(const std::vector<nas::BenchmarkEntry>& entries) {
  const auto width = [](const std::string& column) { return std::max<size_t>(column.size() + 2, 10); };
  for (const auto& [column, value] : entries.front().values) fmt::print("{:>{}}", column, width(column));
  fmt::print("  cell\n");
  for (const nas::BenchmarkEntry& entry : entries) {
    for (const auto& [column, value] : entry.values) {
      fmt::print("{:>{}}", value_text(column, value), width(column));
    }
    fmt::print("  {}{}{}\n", entry.hash, entry.hash.empty() ? "" : "  ",
               entry.genotype.empty() ? entry.graph : entry.genotype);
  }
}

void print_query(const QueryJobResult& result) {
  result.entries.size() == 1 ? print_one(result) : print_many(result.entries);
}

}  // namespace

void add_query_command(CLI::App& app, int& exit_code) {
  add_question<QueryJobOptions>(app, exit_code,
                                {"query", "Look up the accuracies of trained cells in a benchmark's table",
                                 "Regret is the table's best accuracy minus the cell's.\n"
                                 "Examples:\n"
                                 "  bilevel query --benchmark nasbench201.csv --best 5 --by cifar10_test\n"
                                 "  bilevel query --benchmark nasbench201.csv --arch "
                                 "'|none~0|+|nor_conv_3x3~0|none~1|+|skip_connect~0|none~1|nor_conv_1x1~2|'"},
                                run_query, print_query);
}

}  // namespace bilevel::cli
