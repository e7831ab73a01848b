// Counts of derived networks against every row of the published tables.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include "bilevel/nas/network.h"
#include "bilevel/nas/table201.h"
#include "tests/data/files.h"

namespace bilevel::nas {
namespace {

// params_m is printed with six digits, so that it is a whole number of parameters: equality is exact.
// flops_m is printed with three: it agrees to half a thousand multiply-adds of up to 220 million.
TEST(Count, EveryCellOfNasbench201IsTheTables) {
  const std::string path = test::shared_data("nasbench201.csv");
  if (path.empty()) GTEST_SKIP() << "no shared/data/nasbench201.csv";
  const Table201 table = Table201::read(path);
  ASSERT_EQ(table.size(), Table201::cells);
  const SearchSpace space = make_space("nasbench201");
  const std::clock_t begin = std::clock();  // processor time: other work on the machine does not count
  int64_t wrong_parameters = 0, wrong_multiply_adds = 0;
  for (int64_t i = 0; i < Table201::cells; ++i) {
    const Genotype genotype = cell_at201(i);
    const Table201::Row& row = table.query(genotype);
    const Network network(space, genotype, {});
    wrong_parameters += network.parameters() != std::llround(row[6] * 1e6) ? 1 : 0;
    const double millions = static_cast<double>(network.multiply_adds()) / 1e6;
    wrong_multiply_adds += std::abs(millions - row[7]) > 0.5e-3 ? 1 : 0;
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  RecordProperty("seconds", std::to_string(seconds));
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(seconds, 10) << "about one second in a plain build";
#endif
  EXPECT_EQ(wrong_parameters, 0);
  EXPECT_EQ(wrong_multiply_adds, 0);
}

}  // namespace
}  // namespace bilevel::nas
