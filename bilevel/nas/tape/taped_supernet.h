#pragma once
// A supernet's derivatives in alpha and w from a tape, on images that are given: what
// captured_supernet.cpp captures, and what tape_supernet() computes on the CPU.

#include <memory>
#include <optional>

#include "bilevel/core/linearization.h"
#include "bilevel/core/problem.h"
#include "bilevel/nas/supernet_problem.h"
#include "bilevel/nas/tape/passes.h"

namespace bilevel::nas {

class TapedSupernet {
 public:
  // nullopt where the space has no tape, or the device or the type no kernels. `base` must outlive the
  // result.
  static std::optional<TapedSupernet> make(const SupernetProblem& base);

  // The loss is the cross entropy on `images` with the mixture of the point; derivatives in alpha are by the
  // point's. `share`: what the images are of a batch that ranks divide (run_tape()).
  Tensor gradient(const Tensor& w, const Tensor& mixture, const LabelledImages& images,
                  const BatchShare& share = {}) const;  // in w
  Tensor gradient_in_alpha(const Tensor& w, const MixturePoint& mixture, const LabelledImages& images,
                           const BatchShare& share = {}) const;
  OuterGradients gradients(const Tensor& w, const MixturePoint& mixture, const LabelledImages& images,
                           const BatchShare& share = {}, const Wanted& wanted = {}) const;
  std::unique_ptr<Linearization> linearize(const Tensor& w, const MixturePoint& mixture,
                                           const LabelledImages& images, const BatchShare& share = {}) const;
  // v -> (d2/dalpha dalpha of the loss) v.
  MatrixProduct curvature_in_alpha(const Tensor& w, const MixturePoint& mixture,
                                   const LabelledImages& images) const;
  // The passes themselves, whose derivatives are in the mixture.
  std::unique_ptr<TapePoint> point(const Tensor& w, const Tensor& mixture,
                                   const LabelledImages& images) const {
    return run_tape(*tape_, w, mixture, images);
  }

 private:
  TapedSupernet(const SupernetProblem& base, std::shared_ptr<const TapeOnDevice> tape)
      : base_(&base), tape_(std::move(tape)) {}

  const SupernetProblem* base_;
  std::shared_ptr<const TapeOnDevice> tape_;
};

// The supernet's derivatives by its tape, batch by batch, without graphs, or this rank's part of them where
// it was divided; null where it has none or its tensors are not the CPU's. `base` must outlive the result.
std::unique_ptr<SupernetEngine> tape_supernet(const SupernetProblem& base);  // taped_engine.cpp

}  // namespace bilevel::nas
