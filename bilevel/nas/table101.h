#pragma once
// NAS-Bench-101's results (Ying et al., ICML 2019) as one CSV: graph hash, graph, trainable parameters and
// mean test accuracy in percent after 108 epochs. A part of the table, such as the cells that a
// NAS-Bench-1Shot1 space can reach, is read all the same.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/nas/genotype.h"
#include "bilevel/nas/graph101.h"
#include "bilevel/nas/space.h"

namespace bilevel::nas {

struct Row101 {
  using Hash = std::array<unsigned char, 16>;  // MD5
  Hash hash{};
  uint32_t edges = 0;  // as graph101_bits
  int32_t params = 0;
  double test_acc = 0;
  uint8_t vertices = 0;
  std::array<char, 5> operations{};  // as graph101_letters, of vertices - 2 inner vertices

  Graph101 graph() const;
  std::string hash_text() const;
};

class Table101 {
 public:
  // Throws std::runtime_error naming file, line, what was expected and found.
  static Table101 read(const std::string& path);

  const std::vector<Row101>& rows() const { return rows_; }  // in the order of hashes
  double best() const { return best_; }                      // the largest test accuracy
  // The cell after pruning. Throws std::invalid_argument for what NAS-Bench-101 has never trained,
  // std::runtime_error for what is not in this file.
  const Row101& query(const SearchSpace& space, const Genotype& genotype) const;
  const Row101& query(const Graph101& graph) const;
  const Row101& query_hash(std::string_view hash) const;  // 32 hexadecimal digits
  std::vector<Row101> ranking(int64_t count) const;       // by test accuracy, the best first

 private:
  const Row101* find(const Row101::Hash& hash) const;

  std::string path_;
  std::vector<Row101> rows_;
  double best_ = 0;
};

}  // namespace bilevel::nas
