// `bilevel search`: a network for your own images, by differentiable architecture search.

#include "bilevel/jobs/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bilevel/algorithms/linear_solves.h"
#include "bilevel/nas/genotype.h"
#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

std::string cell_number(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

void print_history(const SearchJobResult& result) {
  const bool guard = result.search.guard.on();
  fmt::print("{:>5}{:>12}{:>11}{:>10}{:>12}{:>17}{}{:>7}{}  genotype\n",
             result.search.method == "random" ? "cell" : "epoch", "valid loss", "valid %", "rate",
             "eigenvalue", "implicit/direct", guard ? "     guard" : "", "skips",
             result.has_table ? "   table %" : "");
  for (const nas::EpochRecord& r : result.summary.history) {
    fmt::print("{:>5}{:>12}{:>11}{:>10.2g}{:>12}{:>17}{}{:>7}{}  {}\n", r.epoch,
               cell_number(r.valid_loss, "{:.4f}"), cell_number(r.valid_accuracy, "{:.2f}"), r.rate,
               cell_number(r.eigenvalue, "{:.3g}"), cell_number(r.implicit_over_direct, "{:.3g}"),
               guard ? fmt::format("{:>10}", cell_number(r.guard, "{:.3g}")) : "", r.skips,
               result.has_table ? fmt::format("{:>10}", cell_number(test_accuracy(r), "{:.2f}")) : "",
               nas::genotype_text(r.genotype));
  }
}

void print_search(const SearchJobResult& result) {
  const nas::SearchSummary& s = result.summary;
  print_history(result);
  fmt::print("\n{}{}", nas::name_of(s.end), s.reason.empty() ? "" : ": " + s.reason);
  fmt::print("\ngenotype of {} {}: {}\n", result.search.method == "random" ? "cell" : "epoch", s.chosen_epoch,
             nas::genotype_text(s.genotype));
  fmt::print("its network: {:.3f} M parameters, {:.1f} M multiply-adds\n",
             static_cast<double>(result.parameters) / 1e6, static_cast<double>(result.multiply_adds) / 1e6);
  if (result.in_table) {
    fmt::print("in the table:");
    for (const auto& [column, value] : result.in_table->values) fmt::print(" {} {:.2f}", column, value);
    fmt::print("\n");
  } else if (result.has_table) {
    fmt::print("in the table: {}\n", result.table_note);
  }
  if (!s.history.empty() && std::isfinite(s.history.back().implicit_over_direct) &&
      s.history.back().implicit_over_direct < 0.1) {
    fmt::print(
        "the implicit term is {:.2g} of the direct one: this search is close to first order; more --terms, a "
        "larger --linear-rate (or auto) or --method cg --curvature gauss-newton would increase it\n",
        s.history.back().implicit_over_direct);
  }
  if (!result.baselines.empty()) {
    fmt::print("\ntrained with the same options, {} images:\n", result.baselines_on);
    for (const nas::TrainedCell& cell : result.baselines) {
      fmt::print("{:>12}{:>8.2f} %  {}\n", cell.name, cell.accuracy, nas::genotype_text(cell.genotype));
    }
  }
  for (const std::string& note : s.notes) fmt::print("{}\n", note);
  if (!s.statuses.empty()) fmt::print("linear solves: {}\n", statuses_text(s.statuses));
  fmt::print("{} gradients of g, {} of f, {} Hessian and {} cross products, {:.1f} s\n",
             s.counts.inner_gradient, s.counts.outer_gradient, s.counts.hessian, s.counts.cross, s.seconds);
}

void print_rows(const char* title, const std::vector<SearchProfile::Row>& rows, double seconds) {
  constexpr size_t most = 20;
  fmt::print("\n{:<44}{:>9}{:>10}{:>9}\n", title, "calls", "seconds", "share");
  for (size_t i = 0; i < std::min(rows.size(), most); ++i) {
    std::string name = rows[i].name;  // the end of a long one says most
    if (name.size() > 43) name = "..." + name.substr(name.size() - 40);
    fmt::print("{:<44}{:>9}{:>10.3f}{:>8.1f}%\n", name, rows[i].calls, rows[i].seconds,
               100 * rows[i].seconds / seconds);
  }
  if (rows.size() > most) fmt::print("and {} shorter ones; --json has all of them\n", rows.size() - most);
}

void print_profile(const SearchProfile& profile) {
  print_rows("oracle call", profile.oracle_calls, profile.seconds);
  print_rows("operation, excluding those it calls", profile.operations, profile.seconds);
  double inside = 0;
  for (const SearchProfile::Row& row : profile.operations) inside += row.seconds;
  fmt::print("{:.1f} s in all, {:.1f} of them in these operations\n", profile.seconds, inside);
}

void print_search_and_profile(const SearchJobResult& result) {
  print_search(result);
  if (result.profile) print_profile(*result.profile);
}

}  // namespace

void add_search_command(CLI::App& app, int& exit_code) {
  add_job<SearchJobOptions>(
      app, exit_code,
      {"search", "Search for an image network's architecture (iDARTS, DARTS, GDAS, random)",
       "A network with all operations of a space is trained on one half of the images while alpha, the "
       "weights of the\n"
       "operations, follows the hypergradient of the loss on the other half; the strongest operations are "
       "the answer.\n"
       "Examples:\n"
       "  bilevel search --data fashion-mnist --channels 4 --cells 1 --train-size 2000 --epochs 5\n"
       "  bilevel search --space darts --data my-photos/ --image-size 32 --epochs 20 --stop eigenvalue\n"
       "  bilevel search --data cifar10 --split cifar-split.txt --benchmark nasbench201.csv --device cuda\n"
       "  bilevel search --resume runs/search-20260101-120000-0"},
      run_search, print_search_and_profile);
}

}  // namespace bilevel::cli
