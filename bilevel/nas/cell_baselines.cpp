#include "bilevel/nas/cell_baselines.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include "bilevel/core/random.h"
#include "bilevel/nas/train.h"

namespace bilevel::nas {
namespace {

constexpr const char* convolutions_3x3[] = {"nor_conv_3x3", "sep_conv_3x3", "conv3x3-bn-relu"};

constexpr std::string_view operation_blocks[] = {"edges", "normal", "reduce", "operations"};

// The space's number of it; the number of operations where there is none.
size_t convolution_3x3(const SearchSpace& space) {
  const auto found = std::find_first_of(space.operations.begin(), space.operations.end(),
                                        std::begin(convolutions_3x3), std::end(convolutions_3x3));
  return static_cast<size_t>(found - space.operations.begin());
}

}  // namespace

bool has_3x3(const SearchSpace& space) { return convolution_3x3(space) < space.operations.size(); }

Genotype all_3x3_cell(const SearchSpace& space) {
  if (!has_3x3(space)) throw std::invalid_argument("the space has no 3x3 convolution");
  const auto chosen = static_cast<int64_t>(convolution_3x3(space));
  std::vector<Tensor> parts;
  for (const AlphaBlock& block : space.alpha) {
    Tensor part =
        at::full({block.rows, block.choices}, 1.0 / static_cast<double>(block.choices), at::kDouble);
    // The others choose among vertices: the first of equal ones are taken.
    if (std::find(std::begin(operation_blocks), std::end(operation_blocks), block.name) !=
        std::end(operation_blocks)) {
      part.zero_().select(1, chosen).fill_(1);
    }
    parts.push_back(part.flatten());
  }
  return derive_genotype(space, at::cat(parts));
}

std::vector<TrainedCell> train_cell_baselines(const RandomSearch& plan, const Genotype& found,
                                              const CellBaselineHooks& hooks) {
  std::vector<TrainedCell> cells = {{.name = "found", .genotype = found}};
  if (has_3x3(plan.space)) cells.push_back({.name = "all-3x3", .genotype = all_3x3_cell(plan.space)});
  Random random(named_seed(plan.seed, "samples"));
  for (int64_t i = 1; i <= plan.samples; ++i) {
    cells.push_back({.name = fmt::format("random-{}", i), .genotype = random_genotype(plan.space, random)});
  }
  std::vector<TrainedCell> trained;
  for (TrainedCell& cell : cells) {
    const Network network(plan.space, cell.genotype, plan.network);
    TrainOptions options = plan.training;
    options.seed = plan.seed;  // the same batches and first weights as far as cells have them in common
    const Training training(network, plan.train, plan.valid, options, plan.ranks);
    TrainState state = training.start();
    TrainHooks of_training;
    of_training.interrupted = hooks.interrupted;
    of_training.progress = [&](const TrainProgress& p) {
      if (!hooks.message) return;
      hooks.message(fmt::format("baselines: cell {} of {} ({}), epoch {}/{}", trained.size() + 1,
                                cells.size(), cell.name, p.epoch, p.epochs));
    };
    if (!training.run(state, of_training)) break;
    cell.accuracy = state.history.empty() ? 0 : state.history.back().test_accuracy;
    trained.push_back(cell);
  }
  return trained;
}

}  // namespace bilevel::nas
