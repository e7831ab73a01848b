#include "bilevel/meta/networks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/core/require.h"

namespace bilevel::meta {

const std::vector<std::string>& network_names() {
  static const std::vector<std::string> names = {"omniglot", "conv4", "mlp"};
  return names;
}

void NetworkOptions::validate() const {
  if (std::find(network_names().begin(), network_names().end(), name) == network_names().end()) {
    refuse_unknown("network", name, network_names());
  }
  require_at_least("filters", filters, 1);
}

Network make_network(const NetworkOptions& options, const std::vector<int64_t>& input, int64_t outputs) {
  options.validate();
  std::vector<Layer> layers;
  if (options.name == "mlp") {
    layers.assign(2, {Layer::Kind::dense, options.filters});
  } else {
    const auto kind =
        options.name == "omniglot" ? Layer::Kind::convolution_pool_norm : Layer::Kind::convolution_norm_pool;
    layers.assign(4, {kind, options.filters});
    if (input.size() != 3 || input[1] < 16 || input[2] < 16) {
      throw std::invalid_argument(
          fmt::format("network {}: four poolings need images of at least 16 x 16, but an example is {}; use "
                      "network mlp",
                      options.name, fmt::join(input, " x ")));
    }
  }
  layers.push_back({Layer::Kind::linear, outputs});
  return {input, layers};
}

}  // namespace bilevel::meta
