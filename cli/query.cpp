// `bilevel query`: what trained cells reached, from the tables of NAS-Bench-201 and NAS-Bench-101.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/nas/benchmark.h"
#include "cli/commands.h"
#include "cli/json.h"

namespace bilevel::cli {
namespace {

constexpr int64_t largest_list = int64_t{1} << 30;

struct Options {
  std::string benchmark;
  std::vector<std::string> architectures;
  std::string file;
  std::string space;
  std::vector<std::string> hashes;
  int64_t best = 0;
  std::string by;
  bool allow_missing = false;
  bool json = false;
};

// ---- what is asked ----

void query_file(const nas::Benchmark& benchmark, const nas::SearchSpace& space, const std::string& path,
                std::vector<nas::BenchmarkEntry>& entries) {
  LineReader lines(path, largest_list);
  std::string_view line;
  while (lines.next(line)) {
    line = trimmed(line);
    if (line.empty() || line.starts_with('#')) continue;
    try {
      entries.push_back(benchmark.query(space, nas::parse_genotype(space, line)));
    } catch (const std::invalid_argument& error) {
      line_error(path, lines.number(), "a genotype", error.what(), "lines that begin with # are passed over");
    }
  }
}

std::vector<nas::BenchmarkEntry> collect(const Options& o, const nas::Benchmark& benchmark,
                                         const nas::SearchSpace& space) {
  if (o.best > 0) return benchmark.ranking(o.by.empty() ? benchmark.accuracy_columns().back() : o.by, o.best);
  std::vector<nas::BenchmarkEntry> entries;
  for (const std::string& text : o.architectures) {
    entries.push_back(benchmark.query(space, nas::parse_genotype(space, text)));
  }
  if (!o.file.empty()) query_file(benchmark, space, o.file, entries);
  for (const std::string& hash : o.hashes) entries.push_back(benchmark.query_hash(hash));
  if (entries.empty()) {
    throw std::invalid_argument(fmt::format("--file {}: it holds no genotype, only empty lines", o.file));
  }
  return entries;
}

void require_question(const CLI::App& command, const Options& o) {
  const bool named = !o.architectures.empty() || !o.file.empty() || !o.hashes.empty();
  if (command.count("--best") > 0 && (o.best < 1 || named)) {
    throw std::invalid_argument(
        fmt::format("--best {}: must be at least 1, and stands without --arch, --file and --hash", o.best));
  }
  if (command.count("--by") > 0 && o.best < 1) throw std::invalid_argument("--by: says what --best N is of");
  if (!named && o.best < 1) {
    throw std::invalid_argument("query: say which cells by --arch, --file, --hash or --best N");
  }
}

// ---- JSON ----

Json values_json(const nas::BenchmarkValues& values) {
  Json out = Json::object();
  for (const auto& [column, value] : values) {
    out[column] = column == "params" ? Json(static_cast<int64_t>(value)) : number(value);
  }
  return out;
}

Json entry_json(const nas::BenchmarkEntry& entry) {
  Json out = Json::object();
  if (!entry.genotype.empty()) out["genotype"] = entry.genotype;
  if (!entry.hash.empty()) {
    out["hash"] = entry.hash;
    out["graph"] = entry.graph;
  }
  out.update(values_json(entry.values));
  out["regret"] = values_json(entry.regret);
  return out;
}

// ---- text ----

std::string value_text(const std::string& column, double value) {
  if (column == "params") return fmt::format("{:.0f}", value);
  return fmt::format(fmt::runtime(column == "params_m" ? "{:.6f}" : "{:.4f}"), value);
}

void print_one(const nas::Benchmark& benchmark, const nas::BenchmarkEntry& entry) {
  if (!entry.genotype.empty()) fmt::print("{}\n", entry.genotype);
  if (!entry.hash.empty()) fmt::print("graph {}\nhash  {}\n", entry.graph, entry.hash);
  fmt::print("\n{:<18}{:>12}{:>10}{:>10}\n", "", "value", "best", "regret");
  for (const auto& [column, value] : entry.values) {
    const auto regret = std::find_if(entry.regret.begin(), entry.regret.end(),
                                     [&, name = column](const auto& pair) { return pair.first == name; });
    fmt::print("{:<18}{:>12}", column, value_text(column, value));
    if (regret != entry.regret.end()) {
      fmt::print("{:>10.4f}{:>10.4f}", benchmark.optimum(column), regret->second);
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

void query(const CLI::App& command, const Options& o) {
  require_question(command, o);
  // A wrong name is found before a table is read.
  if (!o.space.empty()) (void)nas::make_space(o.space);
  const nas::Benchmark benchmark = nas::Benchmark::load(o.benchmark, {.allow_missing = o.allow_missing});
  const nas::SearchSpace space = nas::make_space(o.space.empty() ? benchmark.default_space() : o.space);
  const std::vector<nas::BenchmarkEntry> entries = collect(o, benchmark, space);
  if (!o.json) {
    entries.size() == 1 ? print_one(benchmark, entries.front()) : print_many(entries);
    return;
  }
  Json results = Json::array();
  for (const nas::BenchmarkEntry& entry : entries) results.push_back(entry_json(entry));
  fmt::print("{}\n", Json{{"benchmark", benchmark.name()},
                          {"file", o.benchmark},
                          {"space", space.name},
                          {"cells", benchmark.size()},
                          {"results", std::move(results)}}
                         .dump());
}

}  // namespace

void add_query_command(CLI::App& app, int& /*exit_code*/) {
  CLI::App* command = app.add_subcommand("query", "What trained cells reached, from a benchmark's table");
  const auto o = std::make_shared<Options>();
  command
      ->add_option("--benchmark", o->benchmark,
                   "CSV of NAS-Bench-201 or NAS-Bench-101, plain, .gz or .xz; the header tells which")
      ->required();
  command->add_option("--arch", o->architectures, "genotype, as text or JSON; may be given many times")
      ->allow_extra_args(false);
  command->add_option("--file", o->file, "file of genotypes, one per line");
  command->add_option("--space", o->space,
                      "search space of the genotypes; nasbench201 or nasbench1shot1-3 by default");
  command->add_option("--hash", o->hashes, "graph hash of NAS-Bench-101; may be given many times")
      ->allow_extra_args(false);
  command->add_option("--best", o->best, "the N best cells of the table");
  command->add_option("--by", o->by, "accuracy column of --best; the table's last by default");
  command->add_flag("--allow-missing", o->allow_missing, "take a NAS-Bench-201 table that lacks cells");
  command->add_flag("--json", o->json, "print one JSON object on stdout and nothing else");
  command->footer(
      "Regret is the table's best accuracy minus the cell's.\n"
      "Examples:\n"
      "  bilevel query --benchmark nasbench201.csv --best 5 --by cifar10_test\n"
      "  bilevel query --benchmark nasbench201.csv --arch "
      "'|none~0|+|nor_conv_3x3~0|none~1|+|skip_connect~0|none~1|nor_conv_1x1~2|'");
  command->callback([command, o] { query(*command, *o); });
}

}  // namespace bilevel::cli
