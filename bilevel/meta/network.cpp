#include "bilevel/meta/network.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"

namespace bilevel::meta {
namespace {

constexpr double norm_epsilon = 1e-5;  // PyTorch's

bool is_convolution(Layer::Kind kind) {
  return kind == Layer::Kind::convolution_pool_norm || kind == Layer::Kind::convolution_norm_pool;
}

int64_t product(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t length : shape) {
    if (length < 1 || __builtin_mul_overflow(size, length, &size)) {
      throw std::invalid_argument(fmt::format(
          "examples of {} numbers: every length must be at least 1, and their product fit 64 bits",
          fmt::join(shape, " x ")));
    }
  }
  return size;
}

std::vector<int64_t> shape_after(const std::vector<int64_t>& before, const Layer& layer, size_t number) {
  if (layer.outputs < 1) {
    throw std::invalid_argument(
        fmt::format("layer {}: {} outputs: must be at least 1", number + 1, layer.outputs));
  }
  if (!is_convolution(layer.kind)) return {layer.outputs};
  if (before.size() != 3 || before[1] < 2 || before[2] < 2) {
    throw std::invalid_argument(
        fmt::format("layer {}: a convolution with pooling needs channels x height x width of at least 2 x 2, "
                    "but what comes in is {}: use larger images or fewer layers",
                    number + 1, fmt::join(before, " x ")));
  }
  return {layer.outputs, before[1] / 2, before[2] / 2};
}

// The examples of all tasks on their way through the layers. Images lie task by task (tasks * examples x
// channels x ...), as a convolution with shared weights wants them, or with the tasks beside each other as
// channels (examples x tasks * channels x ...): there one grouped convolution serves all tasks' own weights,
// and statistics of a channel are those of one task.
struct Activations {
  Tensor data;
  int64_t tasks, examples;
  bool side_by_side = false;

  void one_after_another() {
    if (side_by_side) {
      data = exchanged(examples, tasks).reshape({tasks * examples, -1, data.size(2), data.size(3)});
    }
    side_by_side = false;
  }
  void beside_each_other() {
    if (!side_by_side) {
      data = exchanged(tasks, examples).reshape({examples, -1, data.size(2), data.size(3)});
    }
    side_by_side = true;
  }
  // tasks x examples x (one example's numbers)
  Tensor rows() {
    one_after_another();
    return data.reshape({tasks, examples, -1});
  }

 private:
  Tensor exchanged(int64_t outer, int64_t inner) const {
    return data.reshape({outer, inner, -1, data.size(2), data.size(3)}).transpose(0, 1);
  }
};

void convolve(Activations& a, const Tensor& weights, const std::vector<int64_t>& shape) {
  // A bias before a normalisation is taken out again with the mean: it is in the vector, as the papers count
  // it, and not added.
  if (weights.dim() == 1) {
    a.one_after_another();
    a.data = at::conv2d(a.data, weights.view(shape), {}, 1, 1);
  } else {
    a.beside_each_other();
    const Tensor stacked = weights.reshape({a.tasks * shape[0], shape[1], shape[2], shape[3]});
    a.data = at::conv2d(a.data, stacked, {}, 1, 1, 1, a.tasks);
  }
}

void normalize(Activations& a, const Tensor& scale, const Tensor& shift) {
  a.beside_each_other();
  const auto per_channel = [&](const Tensor& t) {
    if (!t.defined()) return t;
    return t.dim() == 1 ? t.repeat({a.tasks}) : t.reshape({-1});
  };
  a.data = at::batch_norm(a.data, per_channel(scale), per_channel(shift), {}, {}, /*training=*/true, 0.1,
                          norm_epsilon, /*cudnn_enabled=*/true);
}

Tensor affine(const Tensor& rows, const Tensor& weights, const Tensor& bias, int64_t outputs) {
  const int64_t inputs = rows.size(2);
  if (weights.dim() == 1) return at::matmul(rows, weights.view({outputs, inputs}).t()) + bias;
  const Tensor matrices = weights.reshape({rows.size(0), outputs, inputs});
  return at::baddbmm(bias.unsqueeze(1), rows, matrices.transpose(1, 2));
}

}  // namespace

Network::Network(std::vector<int64_t> input, std::vector<Layer> layers) : layers_(std::move(layers)) {
  if (input.empty()) throw std::invalid_argument("a network needs examples of at least one number");
  (void)product(input);
  shapes_.push_back(std::move(input));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    shapes_.push_back(shape_after(shapes_.back(), layer, i));
    const auto name = [&](const char* part) { return fmt::format("{}.{}", i + 1, part); };
    const std::vector<int64_t>& before = shapes_[i];
    if (is_convolution(layer.kind)) {
      layout_.add(name("weight"), {layer.outputs, before[0], 3, 3});
    } else {
      layout_.add(name("weight"), {layer.outputs, product(before)});
    }
    layout_.add(name("bias"), {layer.outputs});
    if (layer.kind == Layer::Kind::convolution_norm_pool) {
      layout_.add(name("scale"), {layer.outputs});
      layout_.add(name("shift"), {layer.outputs});
    }
  }
}

Tensor Network::operator()(const Tensor& inputs, const Tensor& weights) const {
  if (layers_.empty()) return inputs;
  const int64_t tasks = inputs.size(0), examples = inputs.size(1);
  const bool shared = weights.dim() == 1;
  std::vector<int64_t> sizes;
  for (const Layout::Entry& entry : layout_.entries()) sizes.push_back(entry.size);
  const std::vector<Tensor> parts = weights.split_with_sizes(sizes, shared ? 0 : 1);

  Activations a{inputs.flatten(0, 1), tasks, examples};
  size_t next = 0;
  for (const Layer& layer : layers_) {
    const std::vector<int64_t>& shape = layout_.entries()[next].shape;
    const Tensor &weight = parts[next], &bias = parts[next + 1];
    next += 2;
    switch (layer.kind) {
      case Layer::Kind::convolution_pool_norm:
        convolve(a, weight, shape);
        a.data = at::max_pool2d(a.data, 2);
        normalize(a, {}, {});
        a.data = a.data.relu();
        break;
      case Layer::Kind::convolution_norm_pool:
        convolve(a, weight, shape);
        normalize(a, parts[next], parts[next + 1]);
        next += 2;
        a.data = at::max_pool2d(a.data.relu(), 2);
        break;
      case Layer::Kind::dense:
      case Layer::Kind::linear: {
        const Tensor outputs = affine(a.rows(), weight, bias, layer.outputs);
        a.data = (layer.kind == Layer::Kind::dense ? outputs.relu() : outputs).flatten(0, 1);
        break;
      }
    }
  }
  a.one_after_another();
  std::vector<int64_t> result = {tasks, examples};
  result.insert(result.end(), output_shape().begin(), output_shape().end());
  return a.data.reshape(result);
}

Tensor Network::of_one_task(const Tensor& inputs, const std::vector<Tensor>& parts) const {
  Tensor data = inputs;
  size_t next = 0;
  const auto norm = [](const Tensor& x, const Tensor& scale, const Tensor& shift) {
    return at::batch_norm(x, scale, shift, {}, {}, /*training=*/true, 0.1, norm_epsilon,
                          /*cudnn_enabled=*/true);
  };
  for (const Layer& layer : layers_) {
    const Tensor &weight = parts.at(next), &bias = parts.at(next + 1);
    next += 2;
    switch (layer.kind) {
      case Layer::Kind::convolution_pool_norm:
        data = norm(at::max_pool2d(at::conv2d(data, weight, {}, 1, 1), 2), {}, {}).relu();
        break;
      case Layer::Kind::convolution_norm_pool:
        data = at::max_pool2d(
            norm(at::conv2d(data, weight, {}, 1, 1), parts.at(next), parts.at(next + 1)).relu(), 2);
        next += 2;
        break;
      case Layer::Kind::dense:
      case Layer::Kind::linear:
        data = at::linear(data.dim() > 2 ? data.flatten(1) : data, weight, bias);
        if (layer.kind == Layer::Kind::dense) data = data.relu();
        break;
    }
  }
  return data;
}

int64_t Network::output_size() const { return product(output_shape()); }

std::vector<int64_t> Network::parameters_by_layer() const {
  std::vector<int64_t> sizes;
  auto entry = layout_.entries().begin();
  for (const Layer& layer : layers_) {
    int64_t size = 0;
    const int entries = layer.kind == Layer::Kind::convolution_norm_pool ? 4 : 2;
    for (int i = 0; i < entries; ++i, ++entry) size += entry->size;
    sizes.push_back(size);
  }
  return sizes;
}

Network Network::first(int64_t layers) const {
  return {shapes_.front(), {layers_.begin(), layers_.begin() + layers}};
}

Network Network::rest(int64_t layers) const {
  return {shapes_[static_cast<size_t>(layers)], {layers_.begin() + layers, layers_.end()}};
}

Tensor Network::initial(uint64_t seed, const at::TensorOptions& tensors) const {
  Random random(named_seed(seed, "network"));
  std::vector<Tensor> parts;
  for (size_t i = 0, next = 0; i < layers_.size(); ++i) {
    const std::vector<int64_t>& shape = layout_.entries()[next].shape;
    const double inputs = static_cast<double>(layout_.entries()[next].size / shape[0]);
    const double gain = layers_[i].kind == Layer::Kind::linear ? 1 : 2;
    parts.push_back(std::sqrt(gain / inputs) * random.normal(shape, at::kDouble));
    parts.push_back(at::zeros({shape[0]}, at::kDouble));
    next += 2;
    if (layers_[i].kind == Layer::Kind::convolution_norm_pool) {
      parts.push_back(at::ones({shape[0]}, at::kDouble));
      parts.push_back(at::zeros({shape[0]}, at::kDouble));
      next += 2;
    }
  }
  if (parts.empty()) return at::empty({0}, tensors);
  return layout_.flatten(parts).to(tensors);
}

}  // namespace bilevel::meta
