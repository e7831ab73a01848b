#pragma once
// The passes of one training step over the network of a genotype: by its tape where it has one (tape/), else
// by automatic differentiation; on a GPU as one CUDA graph. On a GPU a pass is for one thread at a time: a
// call writes its inputs to where the graph reads them.

#include <cstdint>
#include <memory>

#include "bilevel/core/tensor.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

class TapedNetwork;  // tape/taped_network.h

struct TrainingLoss {
  double label_smoothing = 0;
  double auxiliary = 0;  // what the second head's loss counts
  double share = 1;      // of the images in a batch that ranks divide
};

struct TrainingValues {
  Tensor loss, correct;  // the batch's mean, and how many of its images are told right
  Tensor gradient;       // in w
  Tensor statistics;     // the running ones, after the batch
};

Tensor correct_count(const Tensor& logits, const Tensor& labels);

// By automatic differentiation. `pass`: Norm::remember; its statistics are written to.
TrainingValues differentiate(const Network& network, const TrainingLoss& loss, const Tensor& w,
                             const LabelledImages& images, const PassOptions& pass);

// Null where the loss or the network have no tape (TapedNetwork::make).
std::shared_ptr<const TapedNetwork> tape_for(const Network& network, const TrainingLoss& loss, int64_t batch,
                                             int64_t normed, const at::TensorOptions& tensors);

class TrainingPass {
 public:
  // For batches of `batch` images. `network` must outlive this object.
  TrainingPass(const Network& network, const TrainingLoss& loss, int64_t batch,
               const at::TensorOptions& tensors);
  ~TrainingPass();

  // `kept` as PassOptions has it: always given, or never.
  TrainingValues operator()(const Tensor& w, const Tensor& statistics, const LabelledImages& images,
                            const Tensor& kept) const;
  bool taped() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace bilevel::nas
