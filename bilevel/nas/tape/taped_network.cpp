#include "bilevel/nas/tape/taped_network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

namespace bilevel::nas {

std::optional<TapedNetwork> TapedNetwork::make(const Network& network, int64_t batch, int64_t normed,
                                               const at::TensorOptions& tensors) {
  if (!can_run_tape(tensors)) return std::nullopt;
  std::optional<Tape> tape = record(network);
  if (!tape) return std::nullopt;
  for (const Tape::Slot& s : tape->slots) {
    if (batch * s.height * s.width * s.channels > std::numeric_limits<int>::max()) return std::nullopt;
  }
  return TapedNetwork(std::move(*tape), normed, tensors);
}

TapedNetwork::TapedNetwork(Tape tape, int64_t normed, const at::TensorOptions& tensors) {
  std::vector<Tensor> parts;
  for (const size_t slot : learned_norms(tape)) {
    const Tape::Slot& s = tape.slots[slot];
    const auto pixels = static_cast<double>(normed * s.height * s.width);
    parts.push_back(at::full({s.channels}, norm_momentum, at::kDouble));
    parts.push_back(at::full({s.channels}, norm_momentum * pixels / std::max(1.0, pixels - 1), at::kDouble));
  }
  share_of_batch_ = at::cat(parts).to(tensors);
  tape_ = std::make_shared<const TapeOnDevice>(std::move(tape), tensors);
}

TapedNetwork::Pass TapedNetwork::operator()(const Tensor& w, const Tensor& statistics,
                                            const LabelledImages& images, const BatchShare& share) const {
  const at::AutoGradMode no_graph(false);
  const std::unique_ptr<TapePoint> point = run_tape(*tape_, w, at::empty({0}, w.options()), images, share);
  Pass pass;
  pass.gradient = point->gradients({.w = true, .mixture = false}).w;
  pass.loss = point->loss();
  pass.logits = point->logits();
  pass.statistics = at::addcmul(statistics * (1 - norm_momentum), point->statistics(), share_of_batch_);
  return pass;
}

}  // namespace bilevel::nas
