#pragma once
// NAS-Bench-201's results (Dong and Yang, ICLR 2020) as one CSV: a row per cell, accuracies in percent after
// 200 epochs, parameters and multiply-adds in millions. tools/nasbench201_csv.py writes it from the official
// file.

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/nas/genotype.h"
#include "bilevel/nas/space.h"

namespace bilevel::nas {

struct Table201Options {
  bool allow_missing = false;  // take a table that lacks cells; asking for one of those throws then
};

class Table201 {
 public:
  static constexpr size_t accuracies = 6;  // the first columns
  static constexpr size_t columns = 8;
  static constexpr int64_t cells = 15'625;
  static const std::vector<std::string>& column_names();  // cifar10_valid, ..., params_m, flops_m
  using Row = std::array<double, columns>;

  // Throws std::runtime_error naming file, line, what was expected and found.
  static Table201 read(const std::string& path, const Table201Options& options = {});

  int64_t size() const { return size_; }  // cells that are there
  // Throws std::invalid_argument for a genotype of another space, std::runtime_error for a missing cell.
  const Row& query(const Genotype& genotype) const;
  const Row& best() const { return best_; }    // each accuracy's largest value; 0 for params_m and flops_m
  Row regret(const Genotype& genotype) const;  // best - value of the accuracies; 0 for the others
  // The `count` cells with the largest values of a column, the best first.
  std::vector<std::pair<Genotype, Row>> ranking(size_t column, int64_t count) const;

 private:
  std::string path_;
  std::vector<Row> rows_;  // by cell_index201
  std::vector<bool> present_;
  int64_t size_ = 0;
  Row best_{};
};

// The six operations as digits of base 5, the edge 0 -> 1 first; the space must hold all five.
int64_t cell_index201(const Genotype& genotype);
Genotype cell_at201(int64_t index);

}  // namespace bilevel::nas
