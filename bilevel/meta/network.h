#pragma once
// Networks as pure functions on flat vectors, for many tasks at once. The weights are one vector that all
// tasks share, or one row for each task; what a task's examples become never depends on the other tasks,
// because batch norm takes its statistics over each task's own batch. So tasks together give what they give
// one after another.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/layout.h"
#include "bilevel/core/tensor.h"

namespace bilevel::meta {

struct Layer {
  enum class Kind {
    convolution_pool_norm,  // 3 x 3, 2 x 2 max pool, batch norm, ReLU: K-RMD's Figure 8
    convolution_norm_pool,  // 3 x 3, batch norm with scale and shift, ReLU, 2 x 2 max pool: stocBiO's
                            // networks
    dense,                  // with bias, ReLU
    linear,                 // with bias
  };
  Kind kind;
  int64_t outputs;  // filters or units
};

class Network {
 public:
  // `input` is the shape of one example: channels x height x width before a convolution. Throws
  // std::invalid_argument where a layer does not fit what comes before it. No layer at all is the identity.
  Network(std::vector<int64_t> input, std::vector<Layer> layers);

  // tasks x examples x (input) -> tasks x examples x (output). The weights: all of them, shared, or one row
  // for each task.
  Tensor operator()(const Tensor& inputs, const Tensor& weights) const;

  const std::vector<int64_t>& input_shape() const { return shapes_.front(); }
  const std::vector<int64_t>& output_shape() const { return shapes_.back(); }
  int64_t output_size() const;  // of one example
  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  const Layout& layout() const { return layout_; }
  int64_t parameters() const { return layout_.size(); }
  std::vector<int64_t> parameters_by_layer() const;

  // One batch of examples, alone: the same numbers as a single task's, by operations that read no size, with
  // the weights apart in the layout's order. This is what a trace records.
  Tensor of_one_task(const Tensor& inputs, const std::vector<Tensor>& parts) const;

  Network first(int64_t layers) const;  // the network's beginning
  Network rest(int64_t layers) const;   // what comes after it

  // He's normal start: variance 2 / inputs before a ReLU and 1 / inputs before nothing; scales 1, biases 0.
  Tensor initial(uint64_t seed, const at::TensorOptions& tensors) const;

 private:
  std::vector<Layer> layers_;
  std::vector<std::vector<int64_t>> shapes_;  // of one example before each layer, and at the end
  Layout layout_;
};

}  // namespace bilevel::meta
