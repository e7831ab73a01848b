#include "bilevel/nas/training_pass.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/nas/captured.h"
#include "bilevel/nas/tape/taped_network.h"

namespace bilevel::nas {
namespace {

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing) {
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Mean, /*ignore_index=*/-100, smoothing);
}

}  // namespace

std::shared_ptr<const TapedNetwork> tape_for(const Network& network, const TrainingLoss& loss, int64_t batch,
                                             int64_t normed, const at::TensorOptions& tensors) {
  if (loss.label_smoothing > 0 || loss.auxiliary > 0) return nullptr;
  std::optional<TapedNetwork> tape = TapedNetwork::make(network, batch, normed, tensors);
  return tape ? std::make_shared<const TapedNetwork>(std::move(*tape)) : nullptr;
}

Tensor correct_count(const Tensor& logits, const Tensor& labels) {
  return logits.detach().argmax(1).eq(labels).sum();
}

// The only derivative of this folder that is not an oracle's or a tape's.
TrainingValues differentiate(const Network& network, const TrainingLoss& loss, const Tensor& w,
                             const LabelledImages& images, const PassOptions& pass) {
  const at::AutoGradMode differentiate_now(true);
  const Tensor leaf = w.detach().requires_grad_(true);
  const NetworkOutput output = network.forward(leaf, images.images, pass);
  Tensor value = cross_entropy(output.logits, images.labels, loss.label_smoothing);
  if (loss.auxiliary > 0) {
    value = value + loss.auxiliary * cross_entropy(output.auxiliary, images.labels, loss.label_smoothing);
  }
  if (loss.share != 1) value = value * loss.share;
  const Tensor gradient = torch::autograd::grad({value}, {leaf})[0];
  return {value.detach(), correct_count(output.logits, images.labels), gradient, pass.statistics};
}

struct TrainingPass::Parts {
  Parts(const Network& network, const TrainingLoss& loss, int64_t images, const at::TensorOptions& tensors)
      : batch(images),
        taped(tape_for(network, loss, images, images, tensors)),
        step(
            [this, &network, loss](const std::vector<Tensor>& in) {
              const LabelledImages given{in[2], in[3]};
              TrainingValues values;
              if (taped) {
                const TapedNetwork::Pass pass = (*taped)(in[0], in[1], given);
                values = {pass.loss, correct_count(pass.logits, in[3]), pass.gradient, pass.statistics};
              } else {
                PassOptions pass{.norm = Norm::remember, .statistics = in[1].clone()};
                if (in.size() > 4) pass.kept = in[4];
                values = differentiate(network, loss, in[0], given, pass);
              }
              return std::vector<Tensor>{values.loss, values.correct, values.gradient, values.statistics};
            },
            tensors) {}

  int64_t batch;
  std::shared_ptr<const TapedNetwork> taped;
  Captured step;
};

TrainingPass::TrainingPass(const Network& network, const TrainingLoss& loss, int64_t batch,
                           const at::TensorOptions& tensors)
    : parts_(std::make_unique<Parts>(network, loss, batch, tensors)) {}

TrainingPass::~TrainingPass() = default;

bool TrainingPass::taped() const { return parts_->taped != nullptr; }

TrainingValues TrainingPass::operator()(const Tensor& w, const Tensor& statistics,
                                        const LabelledImages& images, const Tensor& kept) const {
  if (images.images.size(0) != parts_->batch) {
    throw std::logic_error("a training pass was called with a batch of another size than it was made for");
  }
  // Convolutions of few channels are faster where the channels lie together, and what follows keeps that
  // order.
  std::vector<Tensor> inputs = {w, statistics, images.images.contiguous(at::MemoryFormat::ChannelsLast),
                                images.labels};
  if (kept.defined()) inputs.push_back(kept);
  std::vector<Tensor> values = parts_->step(inputs);
  return {values[0], values[1], values[2], values[3]};
}

}  // namespace bilevel::nas
