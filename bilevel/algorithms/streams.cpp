#include "bilevel/algorithms/streams.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_set>
#include <utility>
#include <vector>

namespace bilevel {

void StreamOptions::validate() const {
  if (inner_batch < 0 || outer_batch < 0) {
    throw std::invalid_argument(
        fmt::format("batches: inner_batch = {} and outer_batch = {}: must be at least 0; 0 is the full set",
                    inner_batch, outer_batch));
  }
}

Streams::Streams(uint64_t root_seed, int64_t inner_samples, int64_t outer_samples, StreamOptions options)
    : root_seed_(root_seed), inner_samples_(inner_samples), outer_samples_(outer_samples), options_(options) {
  options_.validate();
  if (inner_samples < 1 || outer_samples < 1) {
    throw std::invalid_argument(
        fmt::format("batches: the sets hold {} inner and {} outer examples; each needs one", inner_samples,
                    outer_samples));
  }
}

Batch Streams::inner(std::string_view name, int64_t size) {
  return draw("inner/" + std::string(name), inner_samples_, size > 0 ? size : options_.inner_batch);
}

Batch Streams::outer(std::string_view name, int64_t size) {
  return draw("outer/" + std::string(name), outer_samples_, size > 0 ? size : options_.outer_batch);
}

Random Streams::random(std::string_view name) { return Random(next_seed("random/" + std::string(name))); }

void Streams::seek(std::map<std::string, int64_t> positions) {
  for (const auto& [name, position] : positions) {
    if (position < 0) {
      throw std::invalid_argument(fmt::format("stream {}: position {} must be at least 0", name, position));
    }
  }
  positions_ = std::move(positions);
}

uint64_t Streams::next_seed(std::string name) {
  const uint64_t stream = named_seed(root_seed_, name);
  return mix_seeds(stream, static_cast<uint64_t>(positions_[std::move(name)]++));
}

Batch Streams::draw(std::string name, int64_t population, int64_t size) {
  const int64_t position = positions_[name];
  const uint64_t seed = next_seed(name);
  if (size == 0 || size >= population) return {.index = {}, .seed = root_seed_};
  if (options_.by_epochs) {
    const BatchOptions parts{.size = size, .drop_last = true};
    const std::string key = fmt::format("{} of {}", name, size);
    return epochs_.try_emplace(key, root_seed_, key, population, parts).first->second.at(position);
  }
  Random random(seed);
  return {.index = random_subset(random, population, size), .seed = seed};
}

Tensor random_subset(Random& random, int64_t population, int64_t size) {
  if (size < 0 || size > population) {
    throw std::invalid_argument(
        fmt::format("random_subset: size = {}: must be in 0 .. {}", size, population));
  }
  // Floyd's method: every subset is equally likely, and only `size` numbers are drawn.
  std::unordered_set<int64_t> chosen;
  chosen.reserve(static_cast<size_t>(size));
  for (int64_t last = population - size; last < population; ++last) {
    const int64_t candidate = random.below(last + 1);
    chosen.insert(chosen.contains(candidate) ? last : candidate);
  }
  std::vector<int64_t> sorted(chosen.begin(), chosen.end());
  std::sort(sorted.begin(), sorted.end());  // rows are read in the order they lie in
  return at::tensor(sorted, at::TensorOptions().dtype(at::kLong));
}

}  // namespace bilevel
