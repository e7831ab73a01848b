// The benchmark tables: known numbers of the published files, and every way in which a file can be wrong.
#include <gmock/gmock.h>

#include <chrono>

#include "bilevel/data/xz.h"
#include "bilevel/nas/benchmark.h"
#include "bilevel/nas/network_nasbench101.h"
#include "tests/data/files.h"

namespace bilevel::nas {
namespace {

using test::message_of;
using test::shared_data;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string all_of(const char* operation) {
  return fmt::format("|{0}~0|+|{0}~0|{0}~1|+|{0}~0|{0}~1|{0}~2|", operation);
}

double value(const BenchmarkValues& values, std::string_view name) {
  for (const auto& [column, number] : values) {
    if (column == name) return number;
  }
  ADD_FAILURE() << "no column " << name;
  return -1;
}

const std::string header201 =
    "arch,cifar10_valid,cifar10_test,cifar100_valid,cifar100_test,imagenet16_valid,imagenet16_test,"
    "params_m,flops_m\n";
const std::string numbers201 = ",50,51,52,53,54,55,0.5,10\n";
const std::string header101 = "hash,vertices,adj_bits,ops,params,test_acc\n";

class Tables : public ::testing::Test {
 protected:
  std::string says(const std::string& text, bool allow_missing = false) {
    return message_of([&] { Benchmark::load(folder_.put("t.csv", text), {.allow_missing = allow_missing}); });
  }
  test::TemporaryFolder folder_;
};

TEST(Table201Index, GoesRoundOverAllCells) {
  for (int64_t i = 0; i < Table201::cells; i += 7) EXPECT_EQ(cell_index201(cell_at201(i)), i);
  EXPECT_EQ(genotype_text(cell_at201(0)), all_of("none"));
  EXPECT_EQ(genotype_text(cell_at201(Table201::cells - 1)), all_of("avg_pool_3x3"));
  EXPECT_THAT(message_of<std::invalid_argument>([] { cell_at201(15625); }), HasSubstr("0 to 15624"));
}

TEST(Table201Real, HasThePublishedNumbers) {
  const std::string path = shared_data("nasbench201.csv");
  if (path.empty()) GTEST_SKIP() << "no shared/data/nasbench201.csv";
  const Benchmark benchmark = Benchmark::load(path);
  EXPECT_EQ(benchmark.name(), "nasbench201");
  EXPECT_EQ(benchmark.default_space(), "nasbench201");
  EXPECT_EQ(benchmark.size(), 15'625);
  const std::vector<double> best = {91.6067, 94.3733, 73.4933, 73.5133, 46.7333, 47.3111};
  for (size_t i = 0; i < best.size(); ++i) {
    EXPECT_NEAR(benchmark.optimum(benchmark.accuracy_columns()[i]), best[i], 5e-5);
  }
  const SearchSpace space = make_space("nasbench201");
  const BenchmarkEntry skip = benchmark.query(space, parse_genotype(space, all_of("skip_connect")));
  EXPECT_NEAR(value(skip.values, "cifar10_valid"), 39.77, 5e-3);
  EXPECT_NEAR(value(skip.values, "cifar10_test"), 54.30, 5e-3);
  EXPECT_NEAR(value(skip.regret, "cifar10_test"), 94.3733 - 54.30, 6e-3);
  const BenchmarkEntry conv = benchmark.query(space, parse_genotype(space, all_of("nor_conv_3x3")));
  EXPECT_EQ(conv.genotype, all_of("nor_conv_3x3"));
  EXPECT_NEAR(value(conv.values, "cifar10_valid"), 90.20, 5e-3);
  EXPECT_NEAR(value(conv.values, "cifar10_test"), 93.76, 5e-3);
  EXPECT_EQ(value(conv.values, "params_m"), 1.531546);
  EXPECT_NEAR(value(conv.values, "flops_m"), 220.12, 5e-3);
  EXPECT_EQ(conv.values.size(), 8U);
  EXPECT_EQ(conv.regret.size(), 6U);

  const std::vector<BenchmarkEntry> top = benchmark.ranking("cifar10_test", 3);
  ASSERT_EQ(top.size(), 3U);
  EXPECT_EQ(value(top[0].regret, "cifar10_test"), 0);
  EXPECT_GE(value(top[1].values, "cifar10_test"), value(top[2].values, "cifar10_test"));
  EXPECT_EQ(benchmark.query(space, parse_genotype(space, top[2].genotype)).values, top[2].values);

  const auto refused = [&](auto call) { return message_of<std::invalid_argument>(call); };
  EXPECT_THAT(refused([&] { benchmark.optimum("params_m"); }), HasSubstr("'params_m' is no accuracy"));
  EXPECT_THAT(refused([&] { benchmark.query_hash("00"); }), HasSubstr("only NAS-Bench-101"));
  const SearchSpace other = make_space("darts");
  Random random(1);
  EXPECT_THAT(refused([&] { benchmark.query(other, random_genotype(other, random)); }),
              HasSubstr("search space darts: a table of nasbench201 knows only cells of nasbench201"));
}

TEST_F(Tables, Nasbench201SaysWhatIsWrong) {
  const std::string cell = all_of("none");
  EXPECT_THAT(says(""), HasSubstr("t.csv: expected the header of NAS-Bench-201"));
  EXPECT_THAT(says("a,b\n1,2\n"), AllOf(HasSubstr("line 1"), HasSubstr("found 'a,b'")));
  EXPECT_THAT(says("arch,cifar10_valid\n"),
              AllOf(HasSubstr("line 1: expected a column 'cifar10_test' in the header, found none")));
  EXPECT_THAT(says("arch," + header201), HasSubstr("a column 'arch' in the header, found 2"));
  EXPECT_THAT(says(header201 + cell + ",1\n"),
              HasSubstr("line 2: expected 9 fields as in the header, found 2"));
  EXPECT_THAT(says(header201 + "|none~0|" + numbers201),
              AllOf(HasSubstr("line 2: expected a cell of NAS-Bench-201"), HasSubstr("position 8")));
  EXPECT_THAT(says(header201 + "\n" + cell + ",50,x,52,53,54,55,0.5,10\n"),
              HasSubstr("line 3: expected a number from 0 to 100 in column cifar10_test, found 'x'"));
  for (const char* bad : {"nan", "inf", "-1", "101", "1e999", ""}) {
    EXPECT_THAT(says(header201 + cell + ",50," + bad + ",52,53,54,55,0.5,10\n"), HasSubstr("cifar10_test"));
  }
  EXPECT_THAT(says(header201 + cell + numbers201 + cell + numbers201),
              HasSubstr("line 3: expected every cell once, found that of line 2 again"));
  EXPECT_THAT(says(header201), HasSubstr("expected all 15625 cells, found 0"));
  EXPECT_THAT(says(header201, true), HasSubstr("expected all 15625 cells, found 0"));
  EXPECT_THAT(says(header201 + cell + numbers201),
              HasSubstr("found 1; the first that is missing is |none~0|+|none~0|none~1|+|none~0|none~1|"
                        "skip_connect~2|"));
}

TEST_F(Tables, APartOfNasbench201IsTakenWhereAsked) {
  // columns in another order, quoted, with one more, Windows line ends
  const std::string text =
      "n_seeds,params_m,flops_m,arch,cifar10_valid,cifar10_test,cifar100_valid,cifar100_test,"
      "imagenet16_valid,imagenet16_test\r\n3,0.5,10,\"" +
      all_of("none") + "\",50,51,52,53,54,55\r\n";
  const Benchmark benchmark = Benchmark::load(folder_.put("t.csv", text), {.allow_missing = true});
  const SearchSpace space = make_space("nasbench201");
  const BenchmarkEntry entry = benchmark.query(space, parse_genotype(space, all_of("none")));
  EXPECT_EQ(value(entry.values, "flops_m"), 10);
  EXPECT_EQ(value(entry.values, "imagenet16_test"), 55);
  EXPECT_EQ(benchmark.ranking("cifar10_test", 10).size(), 1U);
  EXPECT_THAT(message_of([&] { benchmark.query(space, parse_genotype(space, all_of("skip_connect"))); }),
              AllOf(HasSubstr("expected a row for |skip_connect~0|"), HasSubstr("holds 1 of 15625 cells")));
}

TEST(Table101Real, LoadsFastAndAnswers) {
  const std::string path = has_xz() ? shared_data("nasbench101_test.csv.xz") : "";
  if (path.empty()) GTEST_SKIP() << "no shared/data/nasbench101_test.csv.xz, or a build without liblzma";
  const auto start = std::chrono::steady_clock::now();
  const Benchmark benchmark = Benchmark::load(path);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", std::to_string(seconds.count()));
  EXPECT_LT(seconds.count(), 15) << "about one second on a free machine";
  EXPECT_EQ(benchmark.name(), "nasbench101");
  EXPECT_EQ(benchmark.size(), 423'624);
  const BenchmarkEntry entry = benchmark.query_hash("00005c142e6f48ac74fdcf73e3439874");
  EXPECT_EQ(entry.graph, "7 126465 3m331");
  EXPECT_EQ(value(entry.values, "params"), 8'555'530);
  EXPECT_EQ(value(entry.values, "test_acc"), 92.0606);
  EXPECT_NEAR(value(entry.regret, "test_acc"), 94.3176 - 92.0606, 1e-4);
  EXPECT_EQ(value(benchmark.ranking("test_acc", 2)[0].regret, "test_acc"), 0);

  const SearchSpace space = make_space("nasbench1shot1-3");
  const Genotype genotype = parse_genotype(
      space,
      "maxpool3x3(0) conv3x3-bn-relu(0) conv3x3-bn-relu(2) conv3x3-bn-relu(2,3) maxpool3x3(0,1) output(0,4)");
  const BenchmarkEntry cell = benchmark.query(space, genotype);
  EXPECT_EQ(cell.genotype, genotype_text(genotype));
  EXPECT_EQ(value(cell.values, "params"), plan_network101(graph101(space, genotype)).parameters());
  EXPECT_THAT(
      message_of([&] { benchmark.query_hash(std::string(32, '0')); }),
      HasSubstr("expected a row with hash 00000000000000000000000000000000, found none; the table holds "
                "423624 of"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] { benchmark.query_hash("xyz"); }),
              HasSubstr("hash 'xyz': must be 32 hexadecimal digits"));
}

TEST_F(Tables, Nasbench101SaysWhatIsWrong) {
  const std::string hash = "00005c142e6f48ac74fdcf73e3439874", later = "10005c142e6f48ac74fdcf73e3439874";
  const std::string rest = ",7,126465,3m331,8555530,92.0606\n";
  EXPECT_EQ(says(header101 + hash + rest), "nothing was thrown");
  EXPECT_THAT(says("hash,vertices\n"), HasSubstr("line 1: expected a column 'adj_bits'"));
  EXPECT_THAT(says(header101), HasSubstr("found only a header"));
  EXPECT_THAT(says(header101 + "0x" + rest), HasSubstr("line 2: expected a hash of 32 hexadecimal digits"));
  EXPECT_THAT(says(header101 + hash + ",8,0,3,1,9\n"), HasSubstr("a number from 2 to 7 in column vertices"));
  EXPECT_THAT(says(header101 + hash + ",2.5,0,,1,9\n"), HasSubstr("a whole number"));
  EXPECT_THAT(says(header101 + hash + ",3,8,3,1,9\n"), HasSubstr("adj_bits of 3 bits"));
  EXPECT_THAT(says(header101 + hash + ",3,-1,3,1,9\n"), HasSubstr("adj_bits of 3 bits"));
  EXPECT_THAT(says(header101 + hash + ",3,1,33,1,9\n"), HasSubstr("ops of 1 letters 3, 1 or m, found '33'"));
  EXPECT_THAT(says(header101 + hash + ",3,1,x,1,9\n"), HasSubstr("ops of 1 letters"));
  EXPECT_THAT(says(header101 + hash + ",3,1,3,1.5,9\n"), HasSubstr("a whole number, found '1.5'"));
  EXPECT_THAT(says(header101 + hash + ",3,1,3,1,900\n"), HasSubstr("0 to 100 in column test_acc"));
  EXPECT_THAT(says(header101 + hash + rest + hash + rest), HasSubstr("line 3: expected every hash once"));
  EXPECT_THAT(says(header101 + hash + rest + later + rest + hash + rest),
              HasSubstr("found " + hash + " twice"));
  // another order of rows is as good
  const Table101 table = Table101::read(folder_.put("t.csv", header101 + later + rest + hash + rest));
  EXPECT_EQ(table.query_hash(later).params, 8'555'530);
  EXPECT_EQ(table.rows()[0].hash_text(), hash);
  // ten edges: never trained
  Graph101 graph = table.rows()[0].graph();
  for (size_t x = 0; x < 7; ++x) {
    for (size_t y = x + 1; y < 7; ++y) graph.edges[x][y] = true;
  }
  EXPECT_THAT(
      message_of<std::invalid_argument>([&] { table.query(graph); }),
      HasSubstr(
          "a cell of 7 vertices and 21 edges is not in NAS-Bench-101, whose cells have at most 7 and 9"));
}

}  // namespace
}  // namespace bilevel::nas
