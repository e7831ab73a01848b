#include "bilevel/nas/table201.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "bilevel/data/file_error.h"
#include "bilevel/data/npy_header.h"
#include "bilevel/nas/table_reader.h"

namespace bilevel::nas {
namespace {

constexpr double largest_millions = 1e6;

const SearchSpace& space201() {
  static const SearchSpace space = make_space("nasbench201");
  return space;
}

}  // namespace

const std::vector<std::string>& Table201::column_names() {
  static const std::vector<std::string> names = {"cifar10_valid", "cifar10_test",     "cifar100_valid",
                                                 "cifar100_test", "imagenet16_valid", "imagenet16_test",
                                                 "params_m",      "flops_m"};
  return names;
}

int64_t cell_index201(const Genotype& genotype) {
  validate_genotype(space201(), genotype);
  const std::vector<std::string>& operations = space201().operations;
  int64_t index = 0;
  for (const GenotypeNode& node : genotype.cells.front().nodes) {
    for (const GenotypeInput& input : node.inputs) {
      const auto found = std::find(operations.begin(), operations.end(), input.operation);
      index = index * static_cast<int64_t>(operations.size()) + (found - operations.begin());
    }
  }
  return index;
}

Genotype cell_at201(int64_t index) {
  if (index < 0 || index >= Table201::cells) {
    throw std::invalid_argument(fmt::format("cell {} must be 0 to {}", index, Table201::cells - 1));
  }
  const std::vector<std::string>& operations = space201().operations;
  const auto base = static_cast<int64_t>(operations.size());
  int64_t place = Table201::cells;
  Genotype genotype{space201().name, {{"cell", {}}}};
  for (int64_t node = 1; node <= space201().nodes; ++node) {
    GenotypeNode& made = genotype.cells.front().nodes.emplace_back();
    for (int64_t from = 0; from < node; ++from) {
      place /= base;
      made.inputs.push_back({from, operations[static_cast<size_t>(index / place % base)]});
    }
  }
  return genotype;
}

Table201 Table201::read(const std::string& path, const Table201Options& options) {
  std::vector<std::string> names = column_names();
  names.insert(names.begin(), "arch");
  TableReader reader(path, names);
  Table201 table;
  table.path_ = path;
  table.rows_.resize(cells);
  table.present_.resize(cells);
  std::vector<int64_t> lines(cells);
  while (reader.next()) {
    size_t index = 0;
    try {
      index = static_cast<size_t>(cell_index201(parse_genotype(space201(), reader.text(0))));
    } catch (const std::invalid_argument& error) {
      reader.fail(fmt::format("a cell of NAS-Bench-201 ({})", error.what()), printable(reader.text(0)),
                  "the file is damaged or of another format");
    }
    if (table.present_[index]) {
      reader.fail("every cell once", fmt::format("that of line {} again", lines[index]),
                  "remove one of the two rows");
    }
    table.present_[index] = true;
    lines[index] = reader.line();
    Row& row = table.rows_[index];
    for (size_t c = 0; c < columns; ++c) {
      row[c] = reader.number(c + 1, 0, c < accuracies ? 100 : largest_millions);
      if (c < accuracies) table.best_[c] = std::max(table.best_[c], row[c]);
    }
    ++table.size_;
  }
  if (table.size_ == 0 || (table.size_ < cells && !options.allow_missing)) {
    const auto missing = std::find(table.present_.begin(), table.present_.end(), false);
    line_error(path, 0, fmt::format("all {} cells", cells),
               fmt::format("{}; the first that is missing is {}", table.size_,
                           genotype_text(cell_at201(missing - table.present_.begin()))),
               "is the file cut short?");
  }
  return table;
}

const Table201::Row& Table201::query(const Genotype& genotype) const {
  const auto index = static_cast<size_t>(cell_index201(genotype));
  if (!present_[index]) {
    line_error(path_, 0, fmt::format("a row for {}", genotype_text(genotype)), "none",
               fmt::format("the table holds {} of {} cells", size_, cells));
  }
  return rows_[index];
}

Table201::Row Table201::regret(const Genotype& genotype) const {
  const Row& row = query(genotype);
  Row regret{};
  for (size_t c = 0; c < accuracies; ++c) regret[c] = best_[c] - row[c];
  return regret;
}

std::vector<std::pair<Genotype, Table201::Row>> Table201::ranking(size_t column, int64_t count) const {
  std::vector<size_t> order;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (present_[i]) order.push_back(i);
  }
  const auto end = order.begin() + std::clamp<int64_t>(count, 0, size_);
  std::partial_sort(order.begin(), end, order.end(), [&](size_t a, size_t b) {
    return std::pair(-rows_[a].at(column), a) < std::pair(-rows_[b].at(column), b);
  });
  std::vector<std::pair<Genotype, Row>> ranked;
  for (auto it = order.begin(); it != end; ++it) {
    ranked.emplace_back(cell_at201(static_cast<int64_t>(*it)), rows_[*it]);
  }
  return ranked;
}

}  // namespace bilevel::nas
