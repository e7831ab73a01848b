// NAS-Bench-1Shot1's search network as a tape: supernet_nasbench1shot1.cpp, in its order.

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "bilevel/nas/tape/tape.h"

namespace bilevel::nas {
namespace {

size_t record_node(TapeWriter& tape, const SearchSpace& space, size_t sum, size_t node) {
  const int64_t channels = tape.slot(sum).channels;
  const size_t first = TapeWriter::first_choice(space, "operations") + node * space.operations.size();
  Tape::Mix terms;
  for (size_t o = 0; o < space.operations.size(); ++o) {
    if (space.operations[o] == "maxpool3x3") {
      terms.plains.push_back({.slot = tape.max_pool(sum, 3, 1, 1), .choice = first + o});
      continue;
    }
    const int64_t kernel = space.operations[o] == "conv3x3-bn-relu" ? 3 : 1;
    const size_t z = tape.convolve(sum, false, channels, {.size = kernel});
    terms.plains.push_back(tape.rectified(tape.learned(z), first + o));
  }
  return tape.mix(channels, std::move(terms));
}

size_t record_cell(TapeWriter& tape, const SearchSpace& space, size_t input, int64_t channels) {
  const auto nodes = static_cast<size_t>(space.nodes);
  // The projections to the nodes, then to the output's parts, by one convolution.
  const size_t z = tape.convolve(input, false, 2 * space.nodes * channels, {.size = 1});
  const Tape::NormTerm norm = tape.learned_norm(z);
  std::vector<size_t> projected;
  for (size_t i = 0; i < 2 * nodes; ++i) {
    Tape::NormTerm part = norm;
    part.channel = static_cast<int64_t>(i) * channels;
    projected.push_back(tape.mix(channels, {.norms = {part}}));
  }
  std::vector<size_t> made;
  for (size_t j = 0; j < nodes; ++j) {
    const std::string block = fmt::format("parents-{}", j + 1);
    const auto weight = [&](size_t parent) -> std::optional<size_t> {
      if (!space.has_block(block)) return std::nullopt;
      return TapeWriter::first_choice(space, block) + parent;
    };
    Tape::Mix sum{.plains = {tape.rectified(projected[j], weight(0))}};
    for (size_t i = 0; i < made.size(); ++i) sum.plains.push_back({.slot = made[i], .choice = weight(i + 1)});
    made.push_back(record_node(tape, space, tape.mix(channels, std::move(sum)), j));
  }
  const size_t output = TapeWriter::first_choice(space, "output");
  std::vector<size_t> parts;
  for (size_t i = 0; i < nodes; ++i) {
    Tape::Mix part{.plains = {tape.rectified(projected[nodes + i], output)}};
    part.plains.push_back({.slot = made[i], .choice = output + i + 1});
    parts.push_back(tape.mix(channels, std::move(part)));
  }
  return tape.concatenate_all(parts);
}

}  // namespace

Tape record_nasbench1shot1(const Supernet& supernet) {
  const SupernetOptions& options = supernet.options();
  const std::set<int64_t> halved = reduction_cells(options.cells);
  TapeWriter tape(supernet.plan().weights, supernet.space().alpha_size(), options.input_channels,
                  options.height, options.width);
  int64_t channels = options.channels;
  size_t x =
      tape.mix(channels, {.plains = {tape.rectified(tape.learned(tape.convolve(0, false, channels, {})))}});
  for (int64_t c = 0; c < options.cells; ++c) {
    if (halved.count(c) > 0) {
      channels *= 2;
      x = tape.max_pool(x, 2, 2, 1);
    }
    x = record_cell(tape, supernet.space(), x, channels);
  }
  return tape.finish(tape.normed(tape.convolve(x, true, channels, {.size = 1})), false, options.classes);
}

}  // namespace bilevel::nas
