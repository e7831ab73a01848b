// NAS-Bench-201's networks as tapes, in the order of supernet_nasbench201.cpp, network_nasbench201.cpp and
// skeleton201.cpp.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/nas/skeleton201.h"
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
    const auto choice = [&](size_t to, size_t o) { return edge_of(from, to) * operations + o; };
    // The small operations first: a GPU runs them beside the large convolution that follows.
    for (size_t o = 0; o < operations; ++o) {
      const std::string& operation = space.operations[o];
      if (operation != "skip_connect" && operation != "avg_pool_3x3") continue;
      const size_t feature = operation == "skip_connect" ? node : tape.pool(node);
      for (size_t to = from + 1; to <= last; ++to) {
        terms[to].plains.push_back({.slot = feature, .choice = choice(to, o)});
      }
    }
    for (size_t o = 0; o < operations; ++o) {
      const std::string& operation = space.operations[o];
      if (operation != "nor_conv_1x1" && operation != "nor_conv_3x3") continue;
      // The convolutions of all edges that leave the node are one.
      const auto edges = static_cast<int64_t>(last - from);
      const size_t z =
          tape.convolve(node, true, edges * channels, {.size = operation == "nor_conv_1x1" ? 1 : 3});
      for (size_t to = from + 1; to <= last; ++to) {
        terms[to].norms.push_back(
            {.slot = z, .channel = static_cast<int64_t>(to - from - 1) * channels, .choice = choice(to, o)});
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

Tape record_skeleton(TapeWriter& tape, const Skeleton201& sizes,
                     const std::function<size_t(size_t input)>& cell) {
  size_t x = tape.learned(tape.convolve(0, false, sizes.channels, {.size = 3}));
  for (int64_t stage = 0; stage < 3; ++stage) {
    if (stage > 0) x = record_residual(tape, x, sizes.channels << stage);
    for (int64_t c = 0; c < sizes.cells; ++c) x = cell(x);
  }
  return tape.finish(tape.learned(x), true, sizes.classes);
}

// The cell of one genotype, whose norms have scales and shifts.
size_t record_cell(TapeWriter& tape, const CellGenotype& genotype, size_t input) {
  const int64_t channels = tape.slot(input).channels;
  std::vector<size_t> vertices = {input};
  for (const GenotypeNode& node : genotype.nodes) {
    Tape::Mix sum;
    for (const GenotypeInput& from : node.inputs) {
      const size_t x = vertices[static_cast<size_t>(from.from)];
      if (from.operation == "nor_conv_1x1" || from.operation == "nor_conv_3x3") {
        const int64_t size = from.operation == "nor_conv_1x1" ? 1 : 3;
        sum.norms.push_back(tape.learned_norm(tape.convolve(x, true, channels, {.size = size})));
      } else if (from.operation != "none") {
        sum.plains.push_back({.slot = from.operation == "skip_connect" ? x : tape.pool(x)});
      }
    }
    vertices.push_back(tape.mix(channels, std::move(sum)));
  }
  return vertices.back();
}

// A node that nothing reaches is a tensor of zeros, for which there is no operation.
bool reaches_every_node(const CellGenotype& genotype) {
  for (const GenotypeNode& node : genotype.nodes) {
    bool reached = false;
    for (const GenotypeInput& from : node.inputs) reached = reached || from.operation != "none";
    if (!reached) return false;
  }
  return true;
}

}  // namespace

Tape record_nasbench201(const Supernet& supernet) {
  const SupernetOptions& options = supernet.options();
  TapeWriter tape(supernet.plan().weights, supernet.space().alpha_size(), options.input_channels,
                  options.height, options.width);
  return record_skeleton(tape, {options.channels, options.cells, options.classes},
                         [&](size_t x) { return record_cell(tape, supernet.space(), x); });
}

std::optional<Tape> record_nasbench201(const Network& network) {
  const CellGenotype& cell = network.genotype().cells.at(0);
  if (!reaches_every_node(cell)) return std::nullopt;
  const NetworkOptions& options = network.options();
  TapeWriter tape(network.plan().weights, 0, options.input_channels, options.height, options.width);
  return record_skeleton(tape, {options.channels, options.cells, options.classes},
                         [&](size_t x) { return record_cell(tape, cell, x); });
}

}  // namespace bilevel::nas
