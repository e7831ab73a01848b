// NAS-Bench-201's search network as a tape: supernet_nasbench201.cpp and skeleton201.cpp, in their order.

#include <string>
#include <utility>
#include <vector>

#include "bilevel/nas/tape/tape.h"

namespace bilevel::nas {
namespace {

size_t edge_of(size_t from, size_t to) { return to * (to - 1) / 2 + from; }

size_t record_cell(TapeWriter& tape, const SearchSpace& space, size_t input) {
  const auto last = static_cast<size_t>(space.nodes);
  const int64_t channels = tape.slot(input).channels;
  const size_t operations = space.operations.size();
  std::vector<Tape::Mix> terms(last + 1);
  size_t node = input;
  for (size_t from = 0; from < last; ++from) {
    for (size_t o = 0; o < operations; ++o) {
      const std::string& operation = space.operations[o];
      if (operation == "none") continue;
      const bool small = operation == "nor_conv_1x1";
      if (small || operation == "nor_conv_3x3") {
        // The convolutions of all edges that leave the node are one.
        const auto edges = static_cast<int64_t>(last - from);
        const size_t z = tape.convolve(node, true, edges * channels, {.size = small ? 1 : 3});
        for (size_t to = from + 1; to <= last; ++to) {
          terms[to].norms.push_back({.slot = z,
                                     .channel = static_cast<int64_t>(to - from - 1) * channels,
                                     .choice = edge_of(from, to) * operations + o});
        }
      } else {
        const size_t feature = operation == "skip_connect" ? node : tape.pool(node);
        for (size_t to = from + 1; to <= last; ++to) {
          terms[to].plains.push_back({.slot = feature, .choice = edge_of(from, to) * operations + o});
        }
      }
    }
    node = tape.mix(channels, std::move(terms[from + 1]));
  }
  return node;
}

size_t record_residual(TapeWriter& tape, size_t x, int64_t outputs) {
  const size_t a = tape.learned(tape.convolve(x, true, outputs, {.size = 3, .stride = 2}));
  Tape::Mix sum{.norms = {tape.learned_norm(tape.convolve(a, true, outputs, {.size = 3}))}};
  sum.plains = {{.slot = tape.convolve(tape.pairs(x), false, outputs, {.size = 1})}};
  return tape.mix(outputs, std::move(sum));
}

}  // namespace

Tape record_nasbench201(const Supernet& supernet) {
  const SupernetOptions& options = supernet.options();
  TapeWriter tape(supernet, options.input_channels, options.height, options.width);
  size_t x = tape.learned(tape.convolve(0, false, options.channels, {.size = 3}));
  for (int64_t stage = 0; stage < 3; ++stage) {
    if (stage > 0) x = record_residual(tape, x, options.channels << stage);
    for (int64_t c = 0; c < options.cells; ++c) x = record_cell(tape, supernet.space(), x);
  }
  return tape.finish(tape.learned(x), true, options.classes);
}

}  // namespace bilevel::nas
