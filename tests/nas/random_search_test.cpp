// Random search: the best of the cells that it trained, and the same cells again after an interruption.

#include "bilevel/nas/random_search.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bilevel/core/errors.h"
#include "bilevel/core/random.h"
#include "bilevel/nas/cell_baselines.h"
#include "bilevel/nas/search_checkpoint.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

// Two classes that a network can tell apart: dark and bright noise.
DeviceImages bytes(int64_t samples, uint64_t seed) {
  Random random(seed);
  const Tensor labels = at::arange(samples, at::kLong).remainder(2);
  const Tensor noise = random.uniform({samples, 1, 8, 8}, test::floats()) * 100;
  const Tensor images = (noise + 100 * labels.view({-1, 1, 1, 1})).to(at::kByte);
  return {images, labels, {100}, {60}, test::floats()};
}

RandomSearch small_search() {
  RandomSearch search;
  search.space = make_space("nasbench201");
  search.network.channels = 2;
  search.network.cells = 1;
  search.network.input_channels = 1;
  search.network.height = search.network.width = 8;
  search.network.classes = 2;
  search.train = bytes(64, 1);
  search.valid = bytes(64, 2);
  search.training = default_train_options(SpaceKind::nasbench201);
  search.training.epochs = 3;
  search.training.batch = 8;
  search.samples = 4;
  search.seed = 3;
  return search;
}

TEST(BestRandomCell, NoScoreThatIsNoNumberWins) {
  const SearchSpace space = make_space("nasbench201");
  Random random(named_seed(7, "samples"));
  std::vector<Genotype> cells;
  for (int i = 0; i < 4; ++i) cells.push_back(random_genotype(space, random));
  const auto best_of = [&](const std::vector<double>& losses) {
    size_t asked = 0;
    return best_random_cell(space, 4, 7, [&](const Genotype& cell) {
      EXPECT_EQ(cell, cells.at(asked));
      return losses.at(asked++);
    });
  };
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(best_of({3, 2, 1, 4}), cells[2]);
  EXPECT_EQ(best_of({nan, 2, 1, 4}), cells[2]);
  EXPECT_EQ(best_of({-infinite, 3, nan, 2}), cells[3]);
  EXPECT_EQ(best_of({infinite, nan, 5, 5}), cells[2]);
  EXPECT_NE(test::message<NotFiniteError>([&] {
              best_of({nan, nan, infinite, nan});
            }).find("none of 4 random cells has a finite validation loss"),
            std::string::npos);
}

TEST(RandomSearch, ReturnsTheBestOfItsCellsAndGoesOnWhereItWasStopped) {
  const RandomSearch search = small_search();
  const SearchSummary whole = random_search(search, nullptr, begin_random_search(search), {});
  ASSERT_EQ(whole.history.size(), 4U);
  double best = 0;
  for (const EpochRecord& r : whole.history) best = std::max(best, r.valid_accuracy);
  EXPECT_EQ(whole.history[static_cast<size_t>(whole.chosen_epoch) - 1].valid_accuracy, best);
  EXPECT_EQ(whole.genotype, whole.history[static_cast<size_t>(whole.chosen_epoch) - 1].genotype);
  EXPECT_GT(best, 90);  // chance is 50
  EXPECT_FALSE(whole.history[0].genotype == whole.history[1].genotype);

  int64_t steps = 0;
  Checkpoint saved;
  SearchHooks hooks;
  hooks.interrupted = [&] { return ++steps == 40; };  // in the second cell: 24 steps each
  hooks.save = [&](const SearchState& state) { put_search(saved = {}, state); };
  EXPECT_EQ(random_search(search, nullptr, begin_random_search(search), hooks).end, SearchEnd::interrupted);
  const SearchSummary rest = random_search(search, nullptr, search_state(saved, search.space, at::kCPU), {});
  EXPECT_EQ(rest.genotype, whole.genotype);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rest.history[i].valid_accuracy, whole.history[i].valid_accuracy);
  }
}

TEST(CellBaselines, All3x3IsACellOfEverySpace) {
  for (const std::string& name : space_names()) {
    const SearchSpace space = make_space(name);
    const Genotype cell = all_3x3_cell(space);
    validate_genotype(space, cell);
    const std::vector<double> shares = operation_shares(space, cell);
    for (size_t i = 0; i < shares.size(); ++i) {
      const std::string& operation = space.operations[i];
      const bool is_3x3 =
          operation == "nor_conv_3x3" || operation == "sep_conv_3x3" || operation == "conv3x3-bn-relu";
      EXPECT_EQ(shares[i], is_3x3 ? 1 : 0) << name << " " << operation;
    }
  }
  EXPECT_FALSE(has_3x3(make_space("nasbench201", {"none", "skip_connect"})));
}

TEST(CellBaselines, TrainTheFoundCellAndOthersAlike) {
  RandomSearch plan = small_search();
  plan.samples = 1;
  const Genotype found = all_3x3_cell(plan.space);
  const std::vector<TrainedCell> cells = train_cell_baselines(plan, found, {});
  ASSERT_EQ(cells.size(), 3U);
  EXPECT_EQ(cells[0].name, "found");
  EXPECT_EQ(cells[2].name, "random-1");
  Random random(named_seed(plan.seed, "samples"));
  EXPECT_EQ(cells[2].genotype, random_genotype(plan.space, random)) << "the first cell of a random search";
  EXPECT_GT(cells[1].accuracy, 90);  // chance is 50
  EXPECT_EQ(cells[0].accuracy, cells[1].accuracy) << "the same cell under two names";
}

TEST(RandomSearch, NeedsACell) {
  RandomSearch search = small_search();
  search.samples = 0;
  EXPECT_NE(test::message([&] {
              random_search(search, nullptr, begin_random_search(search), {});
            }).find("samples = 0"),
            std::string::npos);
}

}  // namespace
}  // namespace bilevel::nas
