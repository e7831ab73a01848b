#include "bilevel/distributed/short_sums.h"

#ifdef BILEVEL_HAS_GLOO_LIBRARY

#include <ATen/ATen.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace bilevel {
namespace {

// All ranks send a piece before they receive one: it must fit into the buffers of a connection.
constexpr size_t piece_bytes = 1 << 16;

template <typename T>
std::unique_ptr<::gloo::Algorithm> make_sum(const std::shared_ptr<::gloo::Context>& context,
                                            Tensor& numbers) {
  const std::vector<T*> at = {numbers.data_ptr<T>()};
  const auto count = static_cast<int>(numbers.numel());
  // Of two, each adds the other's to its own, in one exchange: a + b has the bits of b + a. With more ranks a
  // ring would add in another order on each.
  if (context->size == 2) return std::make_unique<::gloo::AllreduceRing<T>>(context, at, count);
  return std::make_unique<::gloo::AllreduceHalvingDoubling<T>>(context, at, count);
}

}  // namespace

ShortSums::ShortSums(std::shared_ptr<::gloo::Context> context, ShortSumsOptions options)
    : context_(std::move(context)), options_(options) {
  spin(false);
}

void ShortSums::spin(bool whether) {
  for (int other = 0; other < context_->size; ++other) {
    if (other != context_->rank) context_->getPair(other)->setSync(true, whether);
  }
  spins_ = whether;
}

// A rank that waits keeps its core while nobody else wants it: to be woken takes longer than most sums. Where
// somebody does, it would keep the core from the rank that it waits for.
void ShortSums::choose_how_to_wait() {
  if (!options_.may_spin) return;
  const double part = contention_.part();
  if (part < 0) return;
  const bool whether = part < (spins_ ? 0.1 : 0.02);
  if (whether != spins_) spin(whether);
}

// All ranks ask for the same lengths in the same order, so that what is kept fits together.
ShortSums::Kept& ShortSums::kept_for(at::ScalarType type, int64_t count) {
  const auto [found, is_new] = kept_.try_emplace({type, count});
  Kept& kept = found->second;
  if (is_new) {
    kept.numbers = at::zeros({count}, type);
    kept.sum = type == at::kFloat ? make_sum<float>(context_, kept.numbers)
                                  : make_sum<double>(context_, kept.numbers);
  }
  return kept;
}

bool ShortSums::sum_(Tensor& contiguous) {
  const at::ScalarType type = contiguous.scalar_type();
  if (!contiguous.is_cpu() || (type != at::kFloat && type != at::kDouble)) return false;
  const size_t all_bytes = contiguous.nbytes();
  if (!options_.in_pieces && all_bytes > piece_bytes) return false;
  choose_how_to_wait();
  auto* all = static_cast<char*>(contiguous.data_ptr());
  for (size_t at = 0; at < all_bytes; at += piece_bytes) {
    const size_t bytes = std::min(piece_bytes, all_bytes - at);
    Kept& kept = kept_for(type, static_cast<int64_t>(std::bit_ceil(bytes / contiguous.element_size())));
    auto* numbers = static_cast<char*>(kept.numbers.data_ptr());
    std::memcpy(numbers, all + at, bytes);
    std::memset(numbers + bytes, 0, kept.numbers.nbytes() - bytes);  // else it grows from sum to sum
    kept.sum->run();
    std::memcpy(all + at, numbers, bytes);
  }
  return true;
}

}  // namespace bilevel

#endif
