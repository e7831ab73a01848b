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
  // For batches of `batch` images, or parts of them that ranks take; `normed`: over how many of the images a
  // norm has its statistics. nullopt where the network has no tape, the device or the type no kernels, or one
  // of the network's tensors more numbers than those kernels can count.
  static std::optional<TapedNetwork> make(const Network& network, int64_t batch, int64_t normed,
                                          const at::TensorOptions& tensors);

  struct Pass {
    Tensor loss, logits, gradient;
    Tensor statistics;  // the running ones, after the batch
  };
  // The mean cross entropy of the batch and its gradient in w, or what the images' share adds to them. The
  // statistics are those of the images that norms see.
  Pass operator()(const Tensor& w, const Tensor& statistics, const LabelledImages& images,
                  const BatchShare& share = {}) const;

 private:
  TapedNetwork(Tape tape, int64_t normed, const at::TensorOptions& tensors);

  std::shared_ptr<const TapeOnDevice> tape_;
  Tensor share_of_batch_;  // what a batch's statistics count for in the running ones, flat as they are
};

}  // namespace bilevel::nas
