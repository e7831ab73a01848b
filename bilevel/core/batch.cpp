#include "bilevel/core/batch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"

namespace bilevel {
namespace {

void require_position(int64_t position) {
  // The largest integer is refused as well, so that `next` can always move on by one.
  constexpr int64_t last = std::numeric_limits<int64_t>::max() - 1;
  if (position < 0 || position > last) {
    throw std::invalid_argument(
        fmt::format("BatchStream: position = {}: must be in 0 .. {}; a stream begins at 0", position, last));
  }
}

}  // namespace

void BatchOptions::validate(int64_t population) const {
  if (population < 1) {
    throw std::invalid_argument(fmt::format(
        "BatchOptions: population = {}: must be at least 1; is the set empty or was it filtered away?",
        population));
  }
  if (size < 0) {
    throw std::invalid_argument(
        fmt::format("BatchOptions: size = {}: must be at least 0; use 0 for the full set", size));
  }
  if (size > population && !with_replacement) {
    throw std::invalid_argument(fmt::format(
        "BatchOptions: size = {}: must be at most the population {} without replacement; use 0 for the "
        "full set, or with_replacement = true",
        size, population));
  }
}

BatchStream::BatchStream(uint64_t root_seed, std::string_view name, int64_t population, BatchOptions options)
    : seed_(named_seed(root_seed, name)), population_(population), options_(options) {
  options_.validate(population);
}

int64_t BatchStream::batches_per_epoch() const {
  if (options_.size == 0) return 1;
  const int64_t whole = population_ / options_.size;
  const bool has_short = population_ % options_.size != 0;
  // Draws with replacement have no short batch: an epoch is as many as it takes to see `population` examples.
  return whole + (has_short && (options_.with_replacement || !options_.drop_last) ? 1 : 0);
}

Batch BatchStream::next() {
  Batch batch = at(position_);
  ++position_;
  return batch;
}

void BatchStream::seek(int64_t position) {
  require_position(position);
  position_ = position;
}

Batch BatchStream::at(int64_t position) const {
  require_position(position);
  // Three unrelated streams: a user of `batch.seed` never sees the numbers that chose the examples.
  Batch batch;
  batch.seed = mix_seeds(named_seed(seed_, "use"), static_cast<uint64_t>(position));
  if (options_.size == 0) return batch;

  if (options_.with_replacement) {
    Random random(mix_seeds(named_seed(seed_, "draw"), static_cast<uint64_t>(position)));
    batch.index = at::empty({options_.size}, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
    int64_t* data = batch.index.data_ptr<int64_t>();
    for (int64_t i = 0; i < options_.size; ++i) data[i] = random.below(population_);
    return batch;
  }

  const int64_t per_epoch = batches_per_epoch();
  const int64_t begin = position % per_epoch * options_.size;
  const int64_t count = std::min(options_.size, population_ - begin);
  // A copy, because a caller that sorts its indices in place must not reorder the rest of the epoch.
  batch.index = order_of_epoch(position / per_epoch).narrow(0, begin, count).clone();
  return batch;
}

const Tensor& BatchStream::order_of_epoch(int64_t epoch) const {
  if (cached_epoch_ != epoch) {
    cached_order_ =
        Random(mix_seeds(named_seed(seed_, "order"), static_cast<uint64_t>(epoch))).permutation(population_);
    cached_epoch_ = epoch;
  }
  return cached_order_;
}

}  // namespace bilevel
