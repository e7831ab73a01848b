#include "bilevel/nas/table101.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/data/file_error.h"
#include "bilevel/data/npy_header.h"
#include "bilevel/nas/table_reader.h"

namespace bilevel::nas {
namespace {

bool parse_hex(std::string_view text, uint32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_digest(std::string_view text, Row101::Hash& digest) {
  if (text.size() != 2 * digest.size()) return false;
  for (size_t i = 0; i < digest.size(); ++i) {
    uint32_t byte = 0;
    if (!parse_hex(text.substr(2 * i, 2), byte)) return false;
    digest[i] = static_cast<unsigned char>(byte);
  }
  return true;
}

enum Column : size_t { hash, vertices, adj_bits, ops, params, test_acc };

double whole(const TableReader& reader, size_t column, double smallest, double largest) {
  const double value = reader.number(column, smallest, largest);
  if (value != std::floor(value)) {
    reader.fail("a whole number", printable(reader.text(column)), "the file is damaged or of another format");
  }
  return value;
}

Row101 read_row(const TableReader& reader) {
  const char* const hint = "the file is damaged or of another format";
  Row101 row;
  if (!parse_digest(reader.text(hash), row.hash)) {
    reader.fail("a hash of 32 hexadecimal digits", printable(reader.text(hash)), hint);
  }
  row.vertices = static_cast<uint8_t>(whole(reader, vertices, 2, graph101_most_vertices));
  const size_t pairs = size_t{row.vertices} * (row.vertices - 1U) / 2;
  if (!parse_hex(reader.text(adj_bits), row.edges) || row.edges >> pairs != 0) {
    reader.fail(fmt::format("adj_bits of {} bits in hexadecimal digits", pairs),
                printable(reader.text(adj_bits)), hint);
  }
  const std::string_view letters = reader.text(ops);
  if (letters.size() != row.vertices - 2U || letters.find_first_not_of("31m") != std::string_view::npos) {
    reader.fail(fmt::format("ops of {} letters 3, 1 or m", row.vertices - 2), printable(letters), hint);
  }
  std::copy(letters.begin(), letters.end(), row.operations.begin());
  row.params = static_cast<int32_t>(whole(reader, params, 0, std::numeric_limits<int32_t>::max()));
  row.test_acc = reader.number(test_acc, 0, 100);
  return row;
}

}  // namespace

Graph101 Row101::graph() const {
  return graph101_from_bits(vertices, edges, std::string_view(operations.data(), vertices - 2U));
}

std::string Row101::hash_text() const {
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

Table101 Table101::read(const std::string& path) {
  TableReader reader(path, {"hash", "vertices", "adj_bits", "ops", "params", "test_acc"});
  Table101 table;
  table.path_ = path;
  bool sorted = true;
  while (reader.next()) {
    const Row101 row = read_row(reader);
    if (!table.rows_.empty() && table.rows_.back().hash >= row.hash) {
      if (table.rows_.back().hash == row.hash) {
        reader.fail("every hash once", "that of the row before again", "remove one of the two rows");
      }
      sorted = false;
    }
    table.best_ = std::max(table.best_, row.test_acc);
    table.rows_.push_back(row);
  }
  if (table.rows_.empty()) {
    line_error(path, 0, "rows of NAS-Bench-101", "only a header", "is the file cut short?");
  }
  const auto by_hash = [](const Row101& a, const Row101& b) { return a.hash < b.hash; };
  if (!sorted) {
    std::sort(table.rows_.begin(), table.rows_.end(), by_hash);
    const auto twice = std::adjacent_find(table.rows_.begin(), table.rows_.end(),
                                          [](const auto& a, const auto& b) { return a.hash == b.hash; });
    if (twice != table.rows_.end()) {
      line_error(path, 0, "every hash once", fmt::format("{} twice", twice->hash_text()),
                 "remove one of the two rows");
    }
  }
  table.rows_.shrink_to_fit();
  return table;
}

const Row101* Table101::find(const Row101::Hash& digest) const {
  const auto found = std::lower_bound(rows_.begin(), rows_.end(), digest,
                                      [](const Row101& row, const Row101::Hash& d) { return row.hash < d; });
  return found != rows_.end() && found->hash == digest ? &*found : nullptr;
}

const Row101& Table101::query(const SearchSpace& space, const Genotype& genotype) const {
  return query(graph101(space, genotype));
}

const Row101& Table101::query(const Graph101& graph) const {
  const Graph101 cell = pruned(graph);
  if (cell.vertices() > graph101_most_vertices || cell.edge_count() > graph101_most_edges) {
    throw std::invalid_argument(fmt::format(
        "a cell of {} vertices and {} edges is not in NAS-Bench-101, whose cells have at most {} and {}",
        cell.vertices(), cell.edge_count(), graph101_most_vertices, graph101_most_edges));
  }
  return query_hash(graph101_hash(cell));
}

const Row101& Table101::query_hash(std::string_view text) const {
  Row101::Hash digest{};
  if (!parse_digest(text, digest)) {
    throw std::invalid_argument(fmt::format("hash {}: must be 32 hexadecimal digits", printable(text)));
  }
  const Row101* row = find(digest);
  if (row == nullptr) {
    line_error(path_, 0, fmt::format("a row with hash {}", text), "none",
               fmt::format("the table holds {} of NAS-Bench-101's 423624 cells", rows_.size()));
  }
  return *row;
}

std::vector<Row101> Table101::ranking(int64_t count) const {
  std::vector<size_t> order(rows_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto end = order.begin() + std::clamp<int64_t>(count, 0, static_cast<int64_t>(order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](size_t a, size_t b) {
    return std::pair(-rows_[a].test_acc, a) < std::pair(-rows_[b].test_acc, b);
  });
  std::vector<Row101> ranked;
  for (auto it = order.begin(); it != end; ++it) ranked.push_back(rows_[*it]);
  return ranked;
}

}  // namespace bilevel::nas
