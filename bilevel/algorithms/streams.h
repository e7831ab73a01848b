#pragma once
// All the randomness of a run: named streams of one root seed, made when they are first asked for. An
// algorithm says by name which stream feeds which derivative, so that two derivatives never share a sample by
// accident. What a stream gives is a pure function of (root seed, name, position), so that a checkpoint holds
// the positions and nothing else.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "bilevel/core/batch.h"
#include "bilevel/core/random.h"

namespace bilevel {

struct StreamOptions {
  int64_t inner_batch = 0;  // examples of a batch of g; 0 = the full set
  int64_t outer_batch = 0;  // of f
  // Batches of the run's size are parts of a shuffled set, each example once an epoch, short last parts left
  // out, as training loops have it; false: every batch a random subset, independent of all others.
  bool by_epochs = false;
  void validate() const;
};

class Streams {
 public:
  Streams(uint64_t root_seed, int64_t inner_samples, int64_t outer_samples, StreamOptions options = {});

  // The next batch of the stream: a random subset of `size` examples, independent of all others unless
  // options().by_epochs. Size 0 = the run's batch size; a batch that would be as large as the set is the full
  // set, always with the same seed: a run on full sets has nothing random in it, and a linearization can
  // serve two products.
  Batch inner(std::string_view name, int64_t size = 0);
  Batch outer(std::string_view name, int64_t size = 0);
  Random random(std::string_view name);  // the next generator of the stream: anything else that is drawn

  uint64_t root_seed() const { return root_seed_; }
  int64_t inner_samples() const { return inner_samples_; }
  int64_t outer_samples() const { return outer_samples_; }
  const StreamOptions& options() const { return options_; }

  const std::map<std::string, int64_t>& positions() const { return positions_; }
  void seek(std::map<std::string, int64_t> positions);  // throws std::invalid_argument below 0

 private:
  uint64_t next_seed(std::string name);
  Batch draw(std::string name, int64_t population, int64_t size);

  uint64_t root_seed_;
  int64_t inner_samples_, outer_samples_;
  StreamOptions options_;
  std::map<std::string, int64_t> positions_;
  std::map<std::string, BatchStream> epochs_;  // made when first asked for: a cache, no state
};

// `size` different numbers below `population`, in increasing order: int64, CPU.
Tensor random_subset(Random& random, int64_t population, int64_t size);

}  // namespace bilevel
