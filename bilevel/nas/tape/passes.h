#pragma once
// The passes over a tape: loss and gradients at a point, and products with second derivatives there as
// tangent passes over what the first two passes left.

#include <memory>

#include "bilevel/core/tensor.h"
#include "bilevel/nas/supernet_problem.h"
#include "bilevel/nas/tape/tape_on_device.h"

namespace bilevel::nas {

// Derivatives in the weights, flat, and in the mixture's; undefined where not asked for.
struct TapeGradients {
  Tensor w, mixture;
};
struct Wanted {
  bool w = true, mixture = true;
};

class TapePoint {
 public:
  virtual ~TapePoint() = default;
  virtual Tensor loss() const = 0;  // cross entropy, the images' part of the batch's mean
  virtual Tensor logits() const = 0;
  // Mean and variance (of all pixels) of the norms with learned scales, flat as NetworkPlan::statistics.
  virtual Tensor statistics() const = 0;
  // The backward pass; at most once, and before any product.
  virtual TapeGradients gradients(const Wanted& wanted) = 0;
  // What gradients() left out: products need the adjoints of the features alone.
  virtual Tensor gradient_in_weights() = 0;
  // The derivative of the gradients along (w_dot, mixture_dot), either undefined = 0.
  virtual TapeGradients products(const Tensor& w_dot, const Tensor& mixture_dot, const Wanted& wanted) = 0;
  // J' L'' J w_dot, with the logits' derivative J in the weights and the loss's second derivative L'' in the
  // logits.
  virtual Tensor gauss_newton(const Tensor& w_dot) = 0;
};

// Float and double on the CPU, and on a GPU where the kernels were built.
bool can_run_tape(const at::TensorOptions& tensors);
// Runs the forward pass. `tape` must outlive the result. Where ranks share a batch, all of them run the same
// passes in the same order; loss and derivatives are a rank's part, which they sum.
std::unique_ptr<TapePoint> run_tape(const TapeOnDevice& tape, const Tensor& w, const Tensor& mixture,
                                    const LabelledImages& images, const BatchShare& share = {});

}  // namespace bilevel::nas
