#pragma once
// The papers' networks by name, each cut in two: an embedding that tasks share and what each task has for
// itself.
//
//   omniglot   K-RMD's Figure 8: four blocks of convolution, pooling, batch norm and ReLU, and a linear
//   layer;
//              with 64 filters on 28 x 28, 37,568 weights in the first two blocks and 74,181 after them
//   conv4      stocBiO's appendix B: four blocks of convolution, batch norm, ReLU and pooling, and a linear
//              layer; FC100 64 filters (the printed stride 2 beside pooling is impossible at 32 x 32: stride
//              1, 256 features), miniImageNet 32 filters (800 features)
//   mlp        two dense layers and a linear one, for points and sinusoids

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/meta/network.h"

namespace bilevel::meta {

struct NetworkOptions {
  std::string name = "mlp";  // omniglot, conv4 or mlp
  int64_t filters = 64;      // of the convolutions, or units of mlp's dense layers
  void validate() const;
};

const std::vector<std::string>& network_names();
// The whole network, from an example to `outputs` scores. Throws std::invalid_argument where the inputs do
// not fit.
Network make_network(const NetworkOptions& options, const std::vector<int64_t>& input, int64_t outputs);

}  // namespace bilevel::meta
