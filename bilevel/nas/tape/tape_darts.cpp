// The search network of DARTS as a tape: supernet_darts.cpp and operations.cpp, in their order.

#include <fmt/format.h>

#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/nas/tape/tape.h"

namespace bilevel::nas {
namespace {

size_t edge_of(size_t from, size_t node) { return node * (node + 3) / 2 + from; }

// The edges that leave a vertex, all copies of an operation in one.
struct Edges {
  size_t x = 0;
  int64_t copies = 1, stride = 1;
};

// Depthwise then pointwise, of max(x, 0).
size_t record_separable(TapeWriter& tape, size_t x, int64_t copies, int64_t of_each,
                        const TapeWriter::Kernel& kernel) {
  const size_t deep = tape.depthwise(x, true, copies / of_each, kernel);
  return tape.convolve(deep, false, tape.slot(deep).channels, {.size = 1, .groups = copies});
}

// The features to be normed of every copy, side by side; nullopt where the operation is no convolution.
std::optional<size_t> record_copies(TapeWriter& tape, const std::string& operation, const Edges& edges) {
  const auto separable = [&](int64_t size, int64_t dilation) {
    return record_separable(tape, edges.x, edges.copies, 1,
                            {.size = size, .stride = edges.stride, .dilation = dilation});
  };
  const auto twice = [&](int64_t size) {
    return record_separable(tape, tape.normed(separable(size, 1)), edges.copies, edges.copies,
                            {.size = size});
  };
  if (operation == "sep_conv_3x3") return twice(3);
  if (operation == "sep_conv_5x5") return twice(5);
  if (operation == "dil_conv_3x3") return separable(3, 2);
  if (operation == "dil_conv_5x5") return separable(5, 2);
  if (operation != "skip_connect" || edges.stride == 1) return std::nullopt;
  // Half the size by two grids.
  const int64_t half = tape.slot(edges.x).channels / 2;
  const TapeWriter::Kernel kernel{.size = 1, .stride = 2};
  const size_t shifted = tape.shift(edges.x), a = tape.convolve(edges.x, true, edges.copies * half, kernel),
               b = tape.convolve(shifted, false, edges.copies * half, kernel);
  std::vector<Tape::Concatenate::Part> parts;
  for (int64_t d = 0; d < edges.copies; ++d) {
    parts.push_back({.slot = a, .channel = d * half, .channels = half});
    parts.push_back({.slot = b, .channel = d * half, .channels = half});
  }
  return tape.concatenate(std::move(parts));
}

// What an operation without weights gives all edges alike.
size_t record_shared(TapeWriter& tape, const std::string& operation, const Edges& edges) {
  if (operation == "skip_connect") return edges.x;
  if (operation == "avg_pool_3x3") return tape.normed(tape.pool(edges.x, edges.stride));
  if (operation == "max_pool_3x3") return tape.normed(tape.max_pool(edges.x, 3, edges.stride, 1));
  throw std::logic_error(
      fmt::format("the tape of the DARTS space does not know the operation {}", operation));
}

size_t record_reduction(TapeWriter& tape, size_t x, int64_t outputs) {
  const TapeWriter::Kernel kernel{.size = 1, .stride = 2};
  const size_t shifted = tape.shift(x), a = tape.convolve(x, true, outputs / 2, kernel),
               b = tape.convolve(shifted, false, outputs - outputs / 2, kernel);
  return tape.normed(tape.concatenate_all({a, b}));
}

struct CellInputs {
  size_t before_last = 0, last = 0;
};

size_t record_cell(TapeWriter& tape, const SearchSpace& space, const CellInputs& inputs, int64_t channels,
                   bool reduce) {
  const auto nodes = static_cast<size_t>(space.nodes);
  const size_t first_choice = TapeWriter::first_choice(space, reduce ? "reduce" : "normal");
  const bool larger = tape.slot(inputs.before_last).height != tape.slot(inputs.last).height;
  std::vector<size_t> vertices;
  vertices.push_back(larger ? record_reduction(tape, inputs.before_last, channels)
                            : tape.normed(tape.convolve(inputs.before_last, true, channels, {.size = 1})));
  vertices.push_back(tape.normed(tape.convolve(inputs.last, true, channels, {.size = 1})));
  std::vector<Tape::Mix> sums(nodes);
  for (size_t from = 0; from < nodes + 1; ++from) {
    if (from >= 2) vertices.push_back(tape.mix(channels, std::move(sums[from - 2])));
    const size_t first = from < 2 ? 0 : from - 1;  // the first node that comes after it
    const Edges edges{.x = vertices[from],
                      .copies = static_cast<int64_t>(nodes - first),
                      .stride = reduce && from < 2 ? 2 : 1};
    for (size_t o = 0; o < space.operations.size(); ++o) {
      const std::string& operation = space.operations[o];
      if (operation == "none") continue;
      const auto choice = [&](size_t node) {
        return first_choice + edge_of(from, node) * space.operations.size() + o;
      };
      if (const auto z = record_copies(tape, operation, edges)) {
        for (size_t node = first; node < nodes; ++node) {
          sums[node].norms.push_back(
              {.slot = *z, .channel = static_cast<int64_t>(node - first) * channels, .choice = choice(node)});
        }
      } else {
        const size_t feature = record_shared(tape, operation, edges);
        for (size_t node = first; node < nodes; ++node) {
          sums[node].plains.push_back({.slot = feature, .choice = choice(node)});
        }
      }
    }
  }
  vertices.push_back(tape.mix(channels, std::move(sums.back())));
  return tape.concatenate_all({vertices.begin() + 2, vertices.end()});
}

}  // namespace

Tape record_darts(const Supernet& supernet) {
  const SupernetOptions& options = supernet.options();
  const std::set<int64_t> reductions = reduction_cells(options.cells);
  TapeWriter tape(supernet.plan().weights, supernet.space().alpha_size(), options.input_channels,
                  options.height, options.width);
  const size_t stem = tape.learned(tape.convolve(0, false, 3 * options.channels, {}));
  CellInputs inputs{stem, stem};
  int64_t channels = options.channels;
  for (int64_t c = 0; c < options.cells; ++c) {
    const bool reduce = reductions.count(c) > 0;
    if (reduce) channels *= 2;
    inputs = {inputs.last, record_cell(tape, supernet.space(), inputs, channels, reduce)};
  }
  return tape.finish(inputs.last, false, options.classes);
}

}  // namespace bilevel::nas
