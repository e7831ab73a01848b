#include "bilevel/data/splits.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/data/labels.h"

namespace bilevel {
namespace {

using Counts = std::vector<int64_t>;

void shuffle(Counts& list, Random& random) {
  for (size_t i = list.size(); i > 1; --i) {
    std::swap(list[i - 1], list[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
}

Counts equal_shares(int64_t size, size_t classes) {
  const auto count = static_cast<int64_t>(classes);
  Counts shares(classes, size / count);
  for (size_t k = 0; std::cmp_less(k, size % count); ++k) ++shares[k];
  return shares;
}

// Shares of `size` in proportion to `available`, which sum to `total`; none is above what is available.
Counts proportional_shares(int64_t size, const Counts& available, int64_t total) {
  Counts shares(available.size());
  std::vector<std::pair<double, size_t>> remainders;
  int64_t given = 0;
  for (size_t k = 0; k < available.size(); ++k) {
    const double share =
        static_cast<double>(size) * static_cast<double>(available[k]) / static_cast<double>(total);
    shares[k] = std::min(static_cast<int64_t>(share), available[k]);
    given += shares[k];
    remainders.emplace_back(static_cast<double>(shares[k]) - share, k);  // the largest remainder sorts first
  }
  std::sort(remainders.begin(), remainders.end());
  while (given < size) {
    for (const auto& [remainder, k] : remainders) {
      if (given == size || shares[k] == available[k]) continue;
      ++shares[k];
      ++given;
    }
  }
  return shares;
}

}  // namespace

Splits make_splits(const Tensor& labels, int64_t classes, const SplitSizes& sizes, Balance balance,
                   uint64_t seed) {
  const std::array<int64_t, 3> wanted{sizes.train, sizes.valid, sizes.test};
  constexpr std::array names{"train", "valid", "test"};
  int64_t sum = 0;
  for (size_t part = 0; part < 3; ++part) {
    if (wanted[part] < 0 || wanted[part] > labels.numel()) {
      throw std::invalid_argument(fmt::format("{} size = {}: must be 0 to {}, the number of examples",
                                              names[part], wanted[part], labels.numel()));
    }
    sum += wanted[part];
  }
  if (sum > labels.numel()) {
    throw std::invalid_argument(fmt::format("split sizes {} + {} + {}: need {} examples, there are {}",
                                            wanted[0], wanted[1], wanted[2], sum, labels.numel()));
  }
  require_at_least("classes", classes, 1);
  check_labels(labels, classes, false, "splits");

  // One pool of shuffled positions per class; a single pool where the classes do not matter.
  const Tensor here = labels.to(at::kCPU).contiguous();
  const int64_t* label = here.data_ptr<int64_t>();
  std::vector<Counts> pools(balance == Balance::none ? 1 : static_cast<size_t>(classes));
  for (int64_t i = 0; i < here.numel(); ++i) {
    pools[balance == Balance::none ? 0 : static_cast<size_t>(label[i])].push_back(i);
  }
  Random random(named_seed(seed, "splits"));
  for (Counts& pool : pools) shuffle(pool, random);

  std::array<Counts, 3> parts;
  Counts used(pools.size());
  for (size_t part = 0; part < 3; ++part) {
    Counts available(pools.size());
    for (size_t k = 0; k < pools.size(); ++k) available[k] = static_cast<int64_t>(pools[k].size()) - used[k];
    const int64_t total = std::accumulate(available.begin(), available.end(), int64_t{0});
    const Counts shares = balance == Balance::equal ? equal_shares(wanted[part], pools.size())
                          : total == 0              ? Counts(pools.size())
                                                    : proportional_shares(wanted[part], available, total);
    for (size_t k = 0; k < pools.size(); ++k) {
      if (shares[k] > available[k]) {
        throw std::invalid_argument(
            fmt::format("class {} has {} examples, {} of them used: the {} set of {} needs {} more with {} "
                        "classes of equal size; take a smaller set, or proportional shares",
                        k, pools[k].size(), used[k], names[part], wanted[part], shares[k], classes));
      }
      const auto begin = pools[k].begin() + used[k];
      parts[part].insert(parts[part].end(), begin, begin + shares[k]);
      used[k] += shares[k];
    }
    shuffle(parts[part], random);
  }
  const auto tensor = [](const Counts& list) {
    return at::tensor(list, at::TensorOptions().dtype(at::kLong));
  };
  return {tensor(parts[0]), tensor(parts[1]), tensor(parts[2])};
}

}  // namespace bilevel
