// Checkpoints, as they come and with the right SHA-256 behind them, which chance would not find; and what
// resuming takes out of one.
#include "bilevel/run/checkpoint.h"

#include <ATen/ATen.h>

#include "bilevel/algorithms/streams.h"
#include "bilevel/data/sha256.h"
#include "bilevel/nas/search_checkpoint.h"
#include "bilevel/run/solve_checkpoint.h"
#include "bilevel/run/state_checkpoint.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

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
  (void)taken([&] { (void)nas::search_state(checkpoint, nas::make_space("nasbench201"), at::kCPU); });
}

int read(std::string_view bytes) {
  const auto reader = [&](const auto& file) { resume(read_checkpoint(file), bytes.size()); };
  int result = taken_file(path_of(bytes), reader);
  Sha256 hash;
  hash.add(bytes);
  return result + taken_file(path_of(std::string(bytes) + hash.hex()), reader);
}

const Register target("checkpoint", read);

}  // namespace
}  // namespace bilevel::fuzz
