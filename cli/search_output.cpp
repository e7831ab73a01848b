#include "cli/search_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "bilevel/data/write_file.h"
#include "bilevel/nas/search_checkpoint.h"
#include "bilevel/report/picture.h"

namespace bilevel::cli {
namespace {

using nas::BenchmarkValues;
using nas::EpochRecord;

Json values_json(const BenchmarkValues& values) {
  Json out = Json::object();
  for (const auto& [column, value] : values) out[column] = value;
  return out;
}

// The accuracy that people look at first.
double test_accuracy(const EpochRecord& r) {
  for (const auto& [column, value] : r.benchmark) {
    if (column == "cifar10_test" || column == "test_acc") return value;
  }
  return std::nan("");
}

std::string cell_number(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

}  // namespace

Json search_json(const SearchOutput& o) {
  const nas::SearchSummary& s = o.summary;
  Json out = {{"space", o.space.name},
              {"method", o.options.method},
              {"data", o.data},
              {"seed", o.options.seed},
              {"guard", o.options.guard.name},
              {"guard_strength", o.options.guard.strength},
              {"stopped", nas::name_of(s.end)},
              {"genotype", nas::genotype_text(s.genotype)},
              {"chosen_epoch", s.chosen_epoch},
              {"parameters", o.parameters},
              {"multiply_adds", o.multiply_adds}};
  add_choice(o.automatic, out);
  if (!s.reason.empty()) out["reason"] = s.reason;
  out["select"] = o.options.select;
  if (o.benchmark != nullptr) {
    try {
      const nas::BenchmarkEntry entry = o.benchmark->query(o.space, s.genotype);
      out["benchmark"] = values_json(entry.values);
      out["regret"] = values_json(entry.regret);
    } catch (const std::runtime_error& missing) {
      out["benchmark_note"] = missing.what();
    }
  }
  const auto numbers = [](const Tensor& t) {
    return std::vector<double>(t.data_ptr<double>(), t.data_ptr<double>() + t.numel());
  };
  out["alpha"] = numbers(s.alpha.contiguous());
  out["mixture"] = numbers(s.mixture.contiguous());
  out["alpha_blocks"] = Json::array();
  for (const nas::AlphaBlock& block : o.space.alpha) {
    out["alpha_blocks"].push_back(
        Json{{"name", block.name}, {"rows", block.rows}, {"choices", block.choices}});
  }
  out["operations"] = o.space.operations;
  out["history"] = Json::array();
  for (const EpochRecord& r : s.history) out["history"].push_back(nas::epoch_json(o.space, r));
  out["linear_solves"] = s.statuses;
  out["counts"] = counts_json(s.counts);
  out["seconds"] = s.seconds;
  if (!s.notes.empty()) out["notes"] = s.notes;
  out["folder"] = o.folder;
  return out;
}

std::string epoch_line(const nas::SearchSpace& space, const EpochRecord& r, int64_t epochs) {
  std::string shares;
  for (size_t i = 0; i < space.operations.size(); ++i) {
    if (r.operation_shares[i] <= 0) continue;
    shares += fmt::format("{}{} {:.0f}%", shares.empty() ? "" : ", ", space.operations[i],
                          100 * r.operation_shares[i]);
  }
  std::string line =
      fmt::format("epoch {}/{}: validation loss {}, accuracy {} %", r.epoch, epochs,
                  cell_number(r.valid_loss, "{:.4f}"), cell_number(r.valid_accuracy, "{:.1f}"));
  if (std::isfinite(test_accuracy(r))) line += fmt::format(", table {:.2f} %", test_accuracy(r));
  if (std::isfinite(r.eigenvalue)) line += fmt::format(", eigenvalue {:.3g}", r.eigenvalue);
  if (std::isfinite(r.mixed_over_direct)) line += fmt::format(", mixed/direct {:.2g}", r.mixed_over_direct);
  return line + fmt::format("; {}; {:.0f} s", shares, r.seconds);
}

void print_search(const SearchOutput& o) {
  const nas::SearchSummary& s = o.summary;
  const bool table = o.benchmark != nullptr, guard = o.options.guard.on();
  fmt::print("{:>5}{:>12}{:>11}{:>10}{:>12}{:>14}{}{:>7}{}  genotype\n",
             o.options.method == "random" ? "cell" : "epoch", "valid loss", "valid %", "rate", "eigenvalue",
             "mixed/direct", guard ? "     guard" : "", "skips", table ? "   table %" : "");
  for (const EpochRecord& r : s.history) {
    fmt::print("{:>5}{:>12}{:>11}{:>10.2g}{:>12}{:>14}{}{:>7}{}  {}\n", r.epoch,
               cell_number(r.valid_loss, "{:.4f}"), cell_number(r.valid_accuracy, "{:.2f}"), r.rate,
               cell_number(r.eigenvalue, "{:.3g}"), cell_number(r.mixed_over_direct, "{:.3g}"),
               guard ? fmt::format("{:>10}", cell_number(r.guard, "{:.3g}")) : "", r.skips,
               table ? fmt::format("{:>10}", cell_number(test_accuracy(r), "{:.2f}")) : "",
               nas::genotype_text(r.genotype));
  }
  fmt::print("\n{}{}", nas::name_of(s.end), s.reason.empty() ? "" : ": " + s.reason);
  fmt::print("\ngenotype of {} {}: {}\n", o.options.method == "random" ? "cell" : "epoch", s.chosen_epoch,
             nas::genotype_text(s.genotype));
  fmt::print("its network: {:.3f} M parameters, {:.1f} M multiply-adds\n",
             static_cast<double>(o.parameters) / 1e6, static_cast<double>(o.multiply_adds) / 1e6);
  if (table) {
    try {
      const nas::BenchmarkEntry entry = o.benchmark->query(o.space, s.genotype);
      fmt::print("in the table:");
      for (const auto& [column, value] : entry.values) fmt::print(" {} {:.2f}", column, value);
      fmt::print("\n");
    } catch (const std::runtime_error& missing) {
      fmt::print("in the table: {}\n", missing.what());
    }
  }
  if (!s.history.empty() && std::isfinite(s.history.back().mixed_over_direct) &&
      s.history.back().mixed_over_direct < 0.1) {
    fmt::print(
        "the implicit term is {:.2g} of the direct one: this search is close to first order; more --terms, a "
        "larger --series-rate (or auto) or --method cg --curvature gauss-newton make it count\n",
        s.history.back().mixed_over_direct);
  }
  for (const std::string& note : s.notes) fmt::print("{}\n", note);
  if (!s.statuses.empty()) fmt::print("linear solves: {}\n", statuses_text(s.statuses));
  fmt::print("{} gradients of g, {} of f, {} Hessian and {} cross products, {:.1f} s\n",
             s.counts.inner_gradient, s.counts.outer_gradient, s.counts.hessian, s.counts.cross, s.seconds);
}

void write_search(const SearchOutput& o) {
  write_file(o.folder + "/genotype.txt", nas::genotype_text(o.summary.genotype) + "\n");
  write_file(o.folder + "/genotype.json", nas::genotype_json(o.summary.genotype) + "\n");
  if (can_draw())
    write_file(o.folder + "/cell.svg", picture_of(nas::genotype_dot(o.summary.genotype), "svg"));
}

}  // namespace bilevel::cli
