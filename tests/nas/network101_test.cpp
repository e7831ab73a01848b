// NAS-Bench-101's networks: counts of real rows of its table, and values against the same network written out
// by hand.
#include "bilevel/nas/network_nasbench101.h"

#include <gmock/gmock.h>

#include "bilevel/data/xz.h"
#include "bilevel/nas/table101.h"
#include "tests/data/files.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::message;
using test::random_like;
using test::relative_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Cost {
  int64_t parameters = 0, multiply_adds = 0;
  bool operator==(const Cost&) const = default;
};

// The sums of the paper's network, without a walk: an independent way to the same numbers.
Cost cost_by_sums(const Graph101& graph) {
  const Graph101 cell = pruned(graph);
  Cost cost;
  const auto add = [&](int64_t from, int64_t to, int64_t kernel, int64_t side) {
    cost.parameters += from * to * kernel * kernel + 2 * to;
    cost.multiply_adds += from * to * kernel * kernel * side * side;
  };
  add(3, 128, 3, 32);
  int64_t from = 128;
  for (int64_t c = 0; c < 9; ++c) {
    const int64_t to = 128 << (c / 3), side = 32 >> (c / 3);
    const std::vector<int64_t> channels = vertex_channels101(cell, from, to);
    for (size_t v = 1; v < channels.size(); ++v) {
      if (cell.edges[0][v]) add(from, channels[v], 1, side);
      if (cell.operations[v] == "conv3x3-bn-relu") add(channels[v], channels[v], 3, side);
      if (cell.operations[v] == "conv1x1-bn-relu") add(channels[v], channels[v], 1, side);
    }
    from = to;
  }
  cost.parameters += 512 * 10 + 10;
  cost.multiply_adds += 512 * 10;
  return cost;
}

Graph101 edges_and(std::vector<std::string> inner, std::vector<std::pair<size_t, size_t>> edges) {
  inner.insert(inner.begin(), "input");
  inner.emplace_back("output");
  const size_t n = inner.size();
  Graph101 graph{std::move(inner), {n, std::vector<bool>(n, false)}};
  for (const auto& [x, y] : edges) graph.edges[x][y] = true;
  return graph;
}

// The smallest network: each cell is one 1x1 projection from the input to the output.
TEST(Network101, TheEmptyCellByHand) {
  int64_t parameters = 3 * 128 * 9 + 2 * 128, multiply_adds = 3 * 128 * 9 * 1024;
  int64_t from = 128, side = 32;
  for (const int64_t to : {128, 256, 512}) {
    for (int module = 0; module < 3; ++module) {
      parameters += from * to + 2 * to;
      multiply_adds += from * to * side * side;
      from = to;
    }
    side /= 2;
  }
  const NetworkPlan plan = plan_network101(graph101_from_bits(2, 1, ""));
  EXPECT_EQ(plan.parameters(), parameters + 512 * 10 + 10);
  EXPECT_EQ(plan.multiply_adds, multiply_adds + 512 * 10);
}

TEST(Network101, ChannelsAreDividedAndHandedBack) {
  // 1, 2 and 4 reach the output (5); 3 leads to 4 only; 0 is added to the output
  const Graph101 graph = edges_and({"maxpool3x3", "maxpool3x3", "maxpool3x3", "maxpool3x3"},
                                   {{0, 1}, {0, 2}, {0, 3}, {3, 4}, {1, 5}, {2, 5}, {4, 5}, {0, 5}});
  EXPECT_THAT(vertex_channels101(graph, 128, 128), ElementsAre(128, 43, 43, 42, 42, 128));
}

TEST(Network101, CountsOfAThousandRowsAreTheTables) {
  const std::string path = has_xz() ? test::shared_data("nasbench101_test.csv.xz") : "";
  if (path.empty()) GTEST_SKIP() << "no shared/data/nasbench101_test.csv.xz, or a build without liblzma";
  const Table101 table = Table101::read(path);
  Random random(23);
  for (int i = 0; i < 1000; ++i) {
    const auto position = static_cast<size_t>(random.below(static_cast<int64_t>(table.rows().size())));
    const Row101& row = table.rows()[position];
    const NetworkPlan plan = plan_network101(row.graph());
    EXPECT_EQ(plan.parameters(), row.params) << row.hash_text();
    EXPECT_EQ((Cost{plan.parameters(), plan.multiply_adds}), cost_by_sums(row.graph())) << row.hash_text();
  }
}

TEST(Network101, AGenotypeAndItsGraphAreOneNetwork) {
  const SearchSpace space = make_space("nasbench1shot1-2");
  Random random(5);
  for (int i = 0; i < 20; ++i) {
    const Genotype genotype = random_genotype(space, random);
    const Network network(space, genotype, {});
    const NetworkPlan plan = plan_network101(graph101(space, genotype));
    EXPECT_EQ(network.parameters(), plan.parameters());
    EXPECT_EQ(network.multiply_adds(), plan.multiply_adds);
  }
}

// Two cells (the second one halved and doubled) whose widths differ: 1 of 6 channels feeds 2 of 3 and 3 of 3.
TEST(Network101, ValuesAreThoseOfTheNetworkWrittenOut) {
  const Graph101 cell = edges_and({"conv3x3-bn-relu", "maxpool3x3", "conv1x1-bn-relu"},
                                  {{0, 1}, {1, 2}, {0, 2}, {1, 3}, {2, 4}, {3, 4}, {0, 4}});
  NetworkOptions options{.channels = 5, .cells = 2};
  options.height = options.width = 8;
  options.classes = 3;
  const NetworkPlan plan = plan_network101(cell, options);
  const Tensor w = plan.initial_weights(1, doubles());
  const Tensor images = random_like(at::zeros({4, 3, 8, 8}, doubles()), 2);

  Pass pass(plan, w);
  const Tensor value = walk_network101(pass, cell, options, {images, 3, 8, 8}).value;

  const std::vector<Tensor> parts = plan.weights.split(w);
  size_t next = 0;
  const auto block = [&](const Tensor& x) {
    const Tensor kernel = parts.at(next++), gain = parts.at(next++), shift = parts.at(next++);
    const Tensor y = at::conv2d(x, kernel, {}, 1, kernel.size(2) / 2);
    return at::relu(at::batch_norm(y, gain, shift, {}, {}, true, 0.1, 1e-5, false));
  };
  Tensor x = block(images);
  for (const int64_t channels : {5, 10}) {
    if (channels == 10) x = at::max_pool2d(x, 2, 2);
    const int64_t second = channels / 2;  // of vertices 2 and 3, the first takes what is left over
    const int64_t first = channels - second;
    const Tensor one = block(block(x));
    ASSERT_EQ(one.size(1), first);
    const Tensor two = at::max_pool2d(one + block(x), 3, 1, 1);
    const Tensor three = block(one.slice(1, 0, second));
    x = at::cat({two, three}, 1) + block(x);
  }
  const Tensor expected = at::linear(x.mean({2, 3}), parts.at(next), parts.at(next + 1));
  EXPECT_EQ(next + 2, parts.size());
  EXPECT_LT(relative_error(value, expected), 1e-14);
}

TEST(Network101, RefusesWhatHasNoPathOrNoRoom) {
  EXPECT_THAT(message([] { plan_network101(edges_and({"maxpool3x3"}, {{0, 1}})); }), HasSubstr("no path"));
  NetworkOptions small;
  small.height = small.width = 3;
  EXPECT_THAT(message([&] { plan_network101(graph101_from_bits(2, 1, ""), small); }),
              HasSubstr("images are too small"));
}

}  // namespace
}  // namespace bilevel::nas
