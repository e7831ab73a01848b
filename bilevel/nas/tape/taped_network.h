#pragma once
// A training step's passes over the network of one genotype by its tape.

#include <memory>
#include <optional>

#include "bilevel/nas/network.h"
#include "bilevel/nas/supernet_problem.h"
#include "bilevel/nas/tape/passes.h"

namespace bilevel::nas {

class TapedNetwork {
 public:
  // For batches of `batch` images. nullopt where the network has no tape, or the device or the type no
  // kernels.
  static std::optional<TapedNetwork> make(const Network& network, int64_t batch,
                                          const at::TensorOptions& tensors);

  struct Pass {
    Tensor loss, logits, gradient;
    Tensor statistics;  // the running ones, after the batch
  };
  // The mean cross entropy of the batch and its gradient in w.
  Pass operator()(const Tensor& w, const Tensor& statistics, const LabelledImages& images) const;

 private:
  TapedNetwork(Tape tape, int64_t batch, const at::TensorOptions& tensors);

  std::shared_ptr<const TapeOnDevice> tape_;
  Tensor share_of_batch_;  // what a batch's statistics count for in the running ones, flat as they are
};

}  // namespace bilevel::nas
