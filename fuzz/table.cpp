// Tables of trained cells, NAS-Bench-201's and NAS-Bench-101's, plain or compressed.
#include "bilevel/nas/benchmark.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_table(std::string_view bytes) {
  return taken_file(path_of(bytes), [](const auto& file) {
    const auto table = nas::Benchmark::load(file, {.allow_missing = true});
    for (const std::string& column : table.accuracy_columns()) {
      const auto ranked = table.ranking(column, 3);
      require(!ranked.empty(), "table: read, but empty");
    }
  });
}

const Register table_target("table", give_table);

}  // namespace
}  // namespace bilevel::fuzz
