#include "bilevel/nas/network_nasbench101.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <set>

#include "bilevel/core/require.h"
#include "bilevel/nas/operations.h"
#include "bilevel/nas/supernet.h"

namespace bilevel::nas {
namespace {

Feature project(Pass& pass, const Feature& x, int64_t channels) {
  return convolve_normalize_relu(pass, x, {.outputs = channels, .kernel = 1});
}

// The first channels: how a wider vertex feeds a narrower one.
Feature truncate(const Feature& x, int64_t channels) {
  if (x.channels == channels) return x;
  Feature y = x;
  y.channels = channels;
  if (x.value.defined()) y.value = x.value.slice(1, 0, channels);
  return y;
}

Feature apply_vertex(Pass& pass, const std::string& operation, const Feature& x) {
  if (operation == "conv3x3-bn-relu") return convolve_normalize_relu(pass, x, {.outputs = x.channels});
  if (operation == "conv1x1-bn-relu") return project(pass, x, x.channels);
  if (operation == "maxpool3x3") return max_pool(x, 3, 1, 1);
  refuse_unknown("operation", operation, graph101_operations());
}

Feature walk_cell(Pass& pass, const Graph101& cell, const Feature& input, int64_t outputs) {
  const std::vector<int64_t> channels = vertex_channels101(cell, input.channels, outputs);
  const size_t last = channels.size() - 1;
  std::vector<Feature> vertices = {input};
  std::vector<Feature> reach_output;
  for (size_t v = 1; v < last; ++v) {
    std::optional<Feature> sum;
    const auto accumulate = [&](const Feature& term) { sum = sum ? add(*sum, term) : term; };
    for (size_t from = 1; from < v; ++from) {
      if (cell.edges[from][v]) accumulate(truncate(vertices[from], channels[v]));
    }
    if (cell.edges[0][v]) accumulate(project(pass, input, channels[v]));
    vertices.push_back(apply_vertex(pass, cell.operations[v], sum.value()));
    if (cell.edges[v][last]) reach_output.push_back(vertices.back());
  }
  if (reach_output.empty()) return project(pass, input, outputs);
  const Feature joined = concatenate(reach_output);
  return cell.edges[0][last] ? add(joined, project(pass, input, outputs)) : joined;
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

Feature walk_network101(Pass& pass, const Graph101& cell, const NetworkOptions& options,
                        const Feature& images) {
  const std::set<int64_t> halved = reduction_cells(options.cells);
  pass.enter("stem");
  int64_t channels = options.channels;
  Feature x = convolve_normalize_relu(pass, images, {.outputs = channels});
  for (int64_t c = 0; c < options.cells; ++c) {
    pass.enter(fmt::format("cell {}", c + 1));
    if (halved.count(c) > 0) {
      x = max_pool(x, 2, 2, 0);
      channels *= 2;
    }
    x = walk_cell(pass, cell, x, channels);
  }
  pass.enter("head");
  return pass.linear(global_pool(x), options.classes);
}

NetworkPlan plan_network101(const Graph101& graph, const NetworkOptions& options) {
  const NetworkOptions complete = options.completed(SpaceKind::nasbench1shot1);
  complete.validate(SpaceKind::nasbench1shot1);
  NetworkPlan plan;
  Pass pass(plan);
  walk_network101(pass, pruned(graph), complete,
                  {{}, complete.input_channels, complete.height, complete.width});
  return plan;
}

}  // namespace bilevel::nas
