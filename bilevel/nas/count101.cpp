#include "bilevel/nas/count101.h"

#include <algorithm>

namespace bilevel::nas {
namespace {

constexpr int64_t image_side = 32;
constexpr int64_t image_channels = 3;
constexpr int64_t stem_channels = 128;
constexpr int64_t stacks = 3;
constexpr int64_t modules_per_stack = 3;
constexpr int64_t classes = 10;

void add_convolution(Cost101& cost, int64_t from, int64_t to, int64_t kernel, int64_t side) {
  const int64_t weights = from * to * kernel * kernel;
  cost.parameters += weights + 2 * to;  // no bias, but a batch norm
  cost.multiply_adds += weights * side * side;
}

void add_module(Cost101& cost, const Graph101& graph, int64_t from, int64_t to, int64_t side) {
  const std::vector<int64_t> channels = vertex_channels101(graph, from, to);
  const size_t n = channels.size();
  for (size_t v = 1; v < n; ++v) {
    if (graph.edges[0][v]) add_convolution(cost, from, channels[v], 1, side);  // the input is projected
    const std::string& operation = graph.operations[v];
    if (operation == "conv3x3-bn-relu") add_convolution(cost, channels[v], channels[v], 3, side);
    if (operation == "conv1x1-bn-relu") add_convolution(cost, channels[v], channels[v], 1, side);
  }
}

}  // namespace

std::vector<int64_t> vertex_channels101(const Graph101& graph, int64_t input_channels,
                                        int64_t output_channels) {
  const size_t n = graph.operations.size();
  std::vector<int64_t> channels(n, 0);
  channels.front() = input_channels;
  channels.back() = output_channels;
  // The input is added to the output, not concatenated, and takes no share.
  std::vector<size_t> last;
  for (size_t v = 1; v + 1 < n; ++v) {
    if (graph.edges[v][n - 1]) last.push_back(v);
  }
  for (size_t i = 0; i < last.size(); ++i) {
    const auto count = static_cast<int64_t>(last.size());
    channels[last[i]] = output_channels / count + (static_cast<int64_t>(i) < output_channels % count ? 1 : 0);
  }
  for (size_t v = n - 1; v-- > 1;) {
    if (graph.edges[v][n - 1]) continue;
    for (size_t next = v + 1; next + 1 < n; ++next) {
      if (graph.edges[v][next]) channels[v] = std::max(channels[v], channels[next]);
    }
  }
  return channels;
}

Cost101 cost101(const Graph101& graph) {
  const Graph101 cell = pruned(graph);
  Cost101 cost;
  int64_t side = image_side, channels = stem_channels;
  add_convolution(cost, image_channels, channels, 3, side);
  for (int64_t stack = 0; stack < stacks; ++stack) {
    if (stack > 0) side /= 2;
    const int64_t width = stem_channels << stack;
    for (int64_t module = 0; module < modules_per_stack; ++module) {
      add_module(cost, cell, channels, width, side);
      channels = width;
    }
  }
  cost.parameters += channels * classes + classes;
  cost.multiply_adds += channels * classes;
  return cost;
}

}  // namespace bilevel::nas
