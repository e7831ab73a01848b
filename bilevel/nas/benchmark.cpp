#include "bilevel/nas/benchmark.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/data/file_error.h"
#include "bilevel/data/npy_header.h"
#include "bilevel/nas/table_reader.h"

namespace bilevel::nas {
namespace {

BenchmarkEntry entry_of(const Table201& table, const Genotype& genotype, const Table201::Row& row) {
  BenchmarkEntry entry;
  entry.genotype = genotype_text(genotype);
  for (size_t c = 0; c < Table201::columns; ++c) {
    const std::string& name = Table201::column_names()[c];
    entry.values.emplace_back(name, row[c]);
    if (c < Table201::accuracies) entry.regret.emplace_back(name, table.best()[c] - row[c]);
  }
  return entry;
}

BenchmarkEntry entry_of(const Table101& table, const Row101& row, std::string genotype = {}) {
  BenchmarkEntry entry;
  entry.genotype = std::move(genotype);
  entry.graph = fmt::format("{} {:x} {}", row.vertices, row.edges, graph101_letters(row.graph()));
  entry.hash = row.hash_text();
  entry.values = {{"params", row.params}, {"test_acc", row.test_acc}};
  entry.regret = {{"test_acc", table.best() - row.test_acc}};
  return entry;
}

}  // namespace

Benchmark Benchmark::load(const std::string& path, const BenchmarkOptions& options) {
  const std::vector<std::string> header = table_header(path);
  const auto has = [&](const char* column) {
    return std::find(header.begin(), header.end(), column) != header.end();
  };
  if (has("arch")) return Benchmark(Table201::read(path, {.allow_missing = options.allow_missing}));
  if (has("hash")) return Benchmark(Table101::read(path));
  std::string found = fmt::format("{}", fmt::join(header, ","));
  line_error(path, header.empty() ? 0 : 1,
             fmt::format("the header of NAS-Bench-201 (arch,{}) or NAS-Bench-101 "
                         "(hash,vertices,adj_bits,ops,params,test_acc)",
                         fmt::join(Table201::column_names(), ",")),
             header.empty() ? "an empty file" : printable(found), "is it another table?");
}

std::string Benchmark::name() const {
  return std::holds_alternative<Table201>(table_) ? "nasbench201" : "nasbench101";
}

std::string Benchmark::default_space() const {
  return std::holds_alternative<Table201>(table_) ? "nasbench201" : "nasbench1shot1-3";
}

int64_t Benchmark::size() const {
  if (const auto* t = std::get_if<Table201>(&table_)) return t->size();
  return static_cast<int64_t>(std::get<Table101>(table_).rows().size());
}

std::vector<std::string> Benchmark::columns() const {
  if (std::holds_alternative<Table201>(table_)) return Table201::column_names();
  return {"params", "test_acc"};
}

std::vector<std::string> Benchmark::accuracy_columns() const {
  if (std::holds_alternative<Table201>(table_)) {
    const auto& names = Table201::column_names();
    return {names.begin(), names.begin() + Table201::accuracies};
  }
  return {"test_acc"};
}

void Benchmark::require_space(const SearchSpace& space) const {
  const bool is_201 = std::holds_alternative<Table201>(table_);
  if (is_201 != (space.kind == SpaceKind::nasbench201) || space.kind == SpaceKind::darts) {
    throw std::invalid_argument(fmt::format("search space {}: a table of {} knows only cells of {}",
                                            space.name, name(),
                                            is_201 ? "nasbench201" : "nasbench1shot1-1, -2 and -3"));
  }
}

BenchmarkEntry Benchmark::query(const SearchSpace& space, const Genotype& genotype) const {
  require_space(space);
  if (const auto* t = std::get_if<Table201>(&table_)) return entry_of(*t, genotype, t->query(genotype));
  const auto& table = std::get<Table101>(table_);
  return entry_of(table, table.query(space, genotype), genotype_text(genotype));
}

BenchmarkEntry Benchmark::query_hash(std::string_view hash) const {
  const auto* table = std::get_if<Table101>(&table_);
  if (table == nullptr) {
    throw std::invalid_argument(
        fmt::format("hash {}: only NAS-Bench-101 names its cells so", printable(hash)));
  }
  return entry_of(*table, table->query_hash(hash));
}

size_t Benchmark::accuracy_index(std::string_view column) const {
  const std::vector<std::string> names = accuracy_columns();
  const auto found = std::find(names.begin(), names.end(), column);
  if (found == names.end()) {
    throw std::invalid_argument(fmt::format("column {} is no accuracy of {}: choose from {}",
                                            printable(column), name(), fmt::join(names, ", ")));
  }
  return static_cast<size_t>(found - names.begin());
}

double Benchmark::optimum(std::string_view column) const {
  const size_t index = accuracy_index(column);
  if (const auto* t = std::get_if<Table201>(&table_)) return t->best()[index];
  return std::get<Table101>(table_).best();
}

std::vector<BenchmarkEntry> Benchmark::ranking(std::string_view column, int64_t count) const {
  const size_t index = accuracy_index(column);
  std::vector<BenchmarkEntry> entries;
  if (const auto* t = std::get_if<Table201>(&table_)) {
    for (const auto& [genotype, row] : t->ranking(index, count)) {
      entries.push_back(entry_of(*t, genotype, row));
    }
  } else {
    const auto& table = std::get<Table101>(table_);
    for (const Row101& row : table.ranking(count)) entries.push_back(entry_of(table, row));
  }
  return entries;
}

}  // namespace bilevel::nas
