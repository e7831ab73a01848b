// Checkpoints, as they come and with the right SHA-256 behind them; and what resuming takes out of one.
#include "bilevel/run/checkpoint.h"

#include <ATen/ATen.h>

#include "bilevel/algorithms/streams.h"
#include "bilevel/meta/learn_checkpoint.h"
#include "bilevel/nas/search_checkpoint.h"
#include "bilevel/nas/train_checkpoint.h"
#include "bilevel/run/solve_checkpoint.h"
#include "bilevel/run/state_checkpoint.h"
#include "fuzz/sealed.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

nas::TrainOptions four_images() {
  nas::TrainOptions options;
  options.batch = 4;
  options.epochs = 2;
  return options;
}

// The smallest network there is to train.
struct Small {
  Small() = default;
  nas::SearchSpace space = nas::make_space("nasbench201");
  nas::Network network{space,
                       nas::parse_genotype(space, "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"),
                       {.channels = 1, .cells = 1, .height = 4, .width = 4, .classes = 2}};
  DeviceImages images{at::zeros({4, 3, 4, 4}, at::kByte),
                      at::zeros({4}, at::kLong),
                      {0, 0, 0},
                      {1, 1, 1},
                      at::TensorOptions().dtype(at::kFloat)};
  nas::Training training{network, images, images, four_images()};
};

void resume(const Checkpoint& checkpoint, size_t file_bytes) {
  size_t held = 0;
  for (const auto& [name, tensor] : checkpoint.tensors) held += tensor.nbytes();
  require(held <= file_bytes, "checkpoint: more data than the file has");
  (void)taken([&] { (void)take_state(checkpoint); });
  (void)taken([&] { (void)take_counts(checkpoint); });
  (void)taken([&] {
    Streams streams(1, 10, 10, {.inner_batch = 2, .outer_batch = 2});
    take_streams(checkpoint, streams);
    (void)streams.inner("batch");
  });
  (void)taken([&] { (void)take_solve(checkpoint, at::kCPU); });
  (void)taken([&] { (void)meta::learn_state(checkpoint, 3, at::kCPU); });
  static const Small small;
  (void)taken([&] { (void)nas::take_training(checkpoint, small.training); });
  (void)taken([&] { (void)nas::search_state(checkpoint, nas::make_space("nasbench201"), at::kCPU); });
}

int give_checkpoint(std::string_view bytes) {
  const auto reader = [&](const auto& file) { resume(read_checkpoint(file), bytes.size()); };
  const int result = taken_file(path_of(bytes), reader);
  return result + taken_file(path_of(sealed(bytes)), reader);
}

const Register checkpoint_target("checkpoint", give_checkpoint);

}  // namespace
}  // namespace bilevel::fuzz
