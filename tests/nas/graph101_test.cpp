// Graphs of NAS-Bench-101 against its own table: hashes of real rows.
#include "bilevel/nas/graph101.h"

#include <gmock/gmock.h>

#include "bilevel/data/xz.h"
#include "bilevel/nas/table101.h"
#include "tests/data/files.h"
#include "tests/messages.h"

namespace bilevel::nas {
namespace {

using test::message;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Empty, and the test skipped, where it is not to be had.
std::string table_path(const char* name) { return has_xz() ? test::shared_data(name) : ""; }
#define NEED_TABLE(path, name)               \
  const std::string path = table_path(name); \
  if (path.empty()) GTEST_SKIP() << "no shared/data/" << name << ", or a build without liblzma"

Graph101 example() {  // 0 -> 1 -> 2 -> 4, 0 -> 3 (loose end), 0 -> 4
  return graph101_from_bits(5, 1U << 0 | 1U << 2 | 1U << 3 | 1U << 6 | 1U << 8, "3m1");
}

TEST(Graph101, BitsGoRound) {
  const Graph101 graph = example();
  EXPECT_THAT(graph.operations,
              ElementsAre("input", "conv3x3-bn-relu", "maxpool3x3", "conv1x1-bn-relu", "output"));
  EXPECT_TRUE(graph.edges[0][1] && graph.edges[1][2] && graph.edges[2][4] && graph.edges[0][3] &&
              graph.edges[0][4]);
  EXPECT_EQ(graph.edge_count(), 5);
  EXPECT_EQ(graph101_from_bits(5, graph101_bits(graph), graph101_letters(graph)), graph);
}

TEST(Graph101, PruningDropsLooseEndsAtBothSides) {
  Graph101 graph = example();
  const Graph101 cell = pruned(graph);
  EXPECT_THAT(cell.operations, ElementsAre("input", "conv3x3-bn-relu", "maxpool3x3", "output"));
  EXPECT_EQ(cell.edge_count(), 4);
  EXPECT_EQ(pruned(cell), cell);
  graph.edges[0][3] = false;  // now vertex 3 is reached by nobody, and leads to the output
  graph.edges[3][4] = true;
  EXPECT_EQ(pruned(graph), cell);
  graph.edges[2][4] = graph.edges[0][4] = false;
  EXPECT_THAT(message([&] { pruned(graph); }), HasSubstr("no path"));
}

TEST(Graph101, AHashIsTheSameForEveryNumbering) {
  // input -> conv3x3 -> output and input -> maxpool -> output, in either order
  const uint32_t both = 1U << 0 | 1U << 1 | 1U << 4 | 1U << 5;
  const std::string hash = graph101_hash(graph101_from_bits(4, both, "3m"));
  EXPECT_EQ(hash, graph101_hash(graph101_from_bits(4, both, "m3")));
  EXPECT_NE(hash, graph101_hash(graph101_from_bits(4, both, "1m")));
}

TEST(Graph101, AGenotypeIsItsGraph) {
  const SearchSpace space = make_space("nasbench1shot1-1");
  const Genotype genotype = parse_genotype(
      space, "conv3x3-bn-relu(0) maxpool3x3(0,1) conv1x1-bn-relu(0,1) maxpool3x3(1,3) output(0,2)");
  const Graph101 graph = graph101(space, genotype);
  EXPECT_EQ(graph.vertices(), 6);
  EXPECT_EQ(graph.edge_count(), 9);
  EXPECT_TRUE(graph.edges[0][5] && graph.edges[2][5] && graph.edges[3][4]);
  EXPECT_THAT(pruned(graph).operations, ElementsAre("input", "conv3x3-bn-relu", "maxpool3x3", "output"));
  const SearchSpace other = make_space("darts");
  EXPECT_THAT(message([&] { graph101(other, genotype); }), HasSubstr("only cells of NAS-Bench-1Shot1"));
}

TEST(Graph101, RefusesWhatIsNoGraph) {
  EXPECT_THAT(message([] { graph101_from_bits(9, 0, ""); }), HasSubstr("vertices = 9: must be 2 to 8"));
  EXPECT_THAT(message([] { graph101_from_bits(3, 8, "3"); }), HasSubstr("must fit in 3 bits"));
  EXPECT_THAT(message([] { graph101_from_bits(3, 1, "33"); }), HasSubstr("must be 1 letters"));
  EXPECT_THAT(message([] { graph101_from_bits(3, 1, "x"); }), HasSubstr("letters 3, 1 and m"));
  Graph101 graph = example();
  graph.edges[3][2] = true;
  EXPECT_THAT(message([&] { graph101_hash(graph); }), HasSubstr("edge 3 -> 2 must lead to a higher vertex"));
  graph = example();
  graph.operations[2] = "conv7x7";
  EXPECT_THAT(message([&] { graph101_hash(graph); }), HasSubstr("operation 'conv7x7' is unknown"));
  graph = example();
  graph.edges.pop_back();
  EXPECT_THAT(message([&] { pruned(graph); }), HasSubstr("5 vertices need 5 rows"));
  graph = example();
  graph.operations.back() = "maxpool3x3";
  EXPECT_THAT(message([&] { pruned(graph); }), HasSubstr("its last output"));
}

TEST(Graph101Table, EveryHashOfSpaceThreeIsOurs) {
  NEED_TABLE(path, "nasbench1shot1_space3_test.csv.xz");
  const Table101 table = Table101::read(path);
  EXPECT_EQ(table.rows().size(), 55'854U);
  EXPECT_NEAR(table.best(), 94.177, 5e-4);
  int64_t wrong = 0;
  for (const Row101& row : table.rows()) wrong += graph101_hash(row.graph()) != row.hash_text() ? 1 : 0;
  EXPECT_EQ(wrong, 0);
}

// Space 3's file holds exactly what its genotypes reach.
TEST(Graph101Table, EveryRandomCellOfSpaceThreeIsThere) {
  NEED_TABLE(path, "nasbench1shot1_space3_test.csv.xz");
  const Table101 table = Table101::read(path);
  const SearchSpace space = make_space("nasbench1shot1-3");
  Random random(17);
  for (int i = 0; i < 3000; ++i) {
    const Genotype genotype = random_genotype(space, random);
    EXPECT_NO_THROW(table.query(space, genotype)) << genotype_text(genotype);
  }
}

TEST(Graph101Table, HashesOfTheWholeTableAreOurs) {
  NEED_TABLE(path, "nasbench101_test.csv.xz");
  const Table101 table = Table101::read(path);
  ASSERT_EQ(table.rows().size(), 423'624U);
  EXPECT_NEAR(table.best(), 94.3176, 5e-5);
  Random random(23);
  int64_t wrong = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Row101& row = table.rows()[static_cast<size_t>(random.below(423'624))];
    wrong += graph101_hash(row.graph()) != row.hash_text() ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0);
  // 1Shot1's other spaces are parts of the table too.
  for (const char* name : {"nasbench1shot1-1", "nasbench1shot1-2"}) {
    const SearchSpace space = make_space(name);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_NO_THROW(table.query(space, random_genotype(space, random))) << name;
    }
  }
}

}  // namespace
}  // namespace bilevel::nas
