#include "bilevel/nas/tape/tape_on_device.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace bilevel::nas {
namespace {

Tensor packing(const Layout& weights, bool inverse) {
  const Tensor order = at::empty({weights.size()}, at::kLong);
  auto* to = order.data_ptr<int64_t>();
  for (const Layout::Entry& e : weights.entries()) {
    if (e.shape.size() != 4) {
      for (int64_t i = 0; i < e.size; ++i) to[e.offset + i] = e.offset + i;
      continue;
    }
    const int64_t inputs = e.shape[1], pixels = e.shape[2] * e.shape[3];
    for (int64_t o = 0; o < e.shape[0]; ++o) {
      for (int64_t c = 0; c < inputs; ++c) {
        for (int64_t p = 0; p < pixels; ++p) {
          const int64_t flat = e.offset + (o * inputs + c) * pixels + p,
                        packed = e.offset + (o * pixels + p) * inputs + c;
          to[inverse ? flat : packed] = inverse ? packed : flat;
        }
      }
    }
  }
  return order;
}

}  // namespace

TapeOnDevice::TapeOnDevice(Tape given, const at::TensorOptions& tensors)
    : tape(std::move(given)),
      to_packed(packing(tape.weights, false).to(tensors.device())),
      to_flat(packing(tape.weights, true).to(tensors.device())) {
  struct Sum {
    std::optional<size_t> choice;
    int64_t channels;
  };
  std::vector<Sum> sums;
  int64_t columns = 0;
  const auto add = [&](const std::optional<size_t>& choice, int64_t channels) {
    sums.push_back({choice, channels});
    columns += channels;
  };
  for (const Tape::Operation& op : tape.operations) {
    const auto* m = std::get_if<Tape::Mix>(&op);
    if (m == nullptr) continue;
    const int64_t channels = tape.slots[m->out].channels;
    add(std::nullopt, channels);
    for (const Tape::NormTerm& term : m->norms) add(term.choice, channels);
    for (const Tape::PlainTerm& term : m->plains) add(term.choice, channels);
  }
  const Tensor matrix = at::zeros({static_cast<int64_t>(tape.choices), columns}, tensors.device(at::kCPU));
  int64_t column = 0;
  for (const Sum& sum : sums) {
    if (sum.choice)
      matrix.select(0, static_cast<int64_t>(*sum.choice)).narrow(0, column, sum.channels).fill_(1);
    column += sum.channels;
  }
  choice_of_sum = matrix.to(tensors.device());
}

}  // namespace bilevel::nas
