#pragma once
// Tables of trained architectures under one roof: what a cell reached, how far that is from the best, and
// which cells are the best. The table's kind is told by its header.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bilevel/nas/genotype.h"
#include "bilevel/nas/space.h"
#include "bilevel/nas/table101.h"
#include "bilevel/nas/table201.h"

namespace bilevel::nas {

struct BenchmarkOptions {
  bool allow_missing = false;  // take a NAS-Bench-201 table that lacks cells
};

// Values by the names of the table's columns, in its order.
using BenchmarkValues = std::vector<std::pair<std::string, double>>;

struct BenchmarkEntry {
  std::string genotype;  // its text; empty where NAS-Bench-101 was not asked by one
  std::string graph;     // of NAS-Bench-101 alone, as in its table: "7 126465 3m331"
  std::string hash;      // the same
  BenchmarkValues values;
  BenchmarkValues regret;  // the table's best - value, of the accuracies
};

class Benchmark {
 public:
  // Throws std::runtime_error where the file is no table of NAS-Bench-201 or NAS-Bench-101, or damaged.
  static Benchmark load(const std::string& path, const BenchmarkOptions& options = {});

  std::string name() const;           // nasbench201 or nasbench101
  std::string default_space() const;  // whose cells it is usually asked for
  int64_t size() const;
  std::vector<std::string> columns() const;
  std::vector<std::string> accuracy_columns() const;

  // Throws std::invalid_argument for a space that the table knows nothing of.
  void require_space(const SearchSpace& space) const;
  // The same, and std::runtime_error for a cell that it lacks.
  BenchmarkEntry query(const SearchSpace& space, const Genotype& genotype) const;
  BenchmarkEntry query_hash(std::string_view hash) const;  // NAS-Bench-101 alone
  double optimum(std::string_view column) const;           // of an accuracy, over all cells of the table
  // The cells with the largest values of a column, the best first.
  std::vector<BenchmarkEntry> ranking(std::string_view column, int64_t count) const;

 private:
  using Table = std::variant<Table201, Table101>;
  explicit Benchmark(Table table) : table_(std::move(table)) {}
  size_t accuracy_index(std::string_view column) const;

  Table table_;
};

}  // namespace bilevel::nas
