#pragma once
// Smoothing by random noise (Chen and Hsieh, SDARTS-RS, ICML 2020): a weight step is taken at softmax(alpha)
// plus uniform noise in [-bound, bound], so that the weights serve the choices around alpha too and the loss
// is flat there. The bound grows along a line from a tenth of the strength, as in the authors' code. What
// alpha follows is taken without noise.

#include "bilevel/nas/guards/guard.h"
#include "bilevel/nas/supernet_engine.h"

namespace bilevel::nas {

// The noise added, entries brought into [0, 1], and rows to the sum 1 again; a row that the noise empties
// keeps its largest entry alone. Drawn from the stream "smoothing" of `seed`.
Tensor smoothed_mixture(const SearchSpace& space, const Tensor& mixture, double bound, uint64_t seed);

class Smoothing : public Guard {
 public:
  // Both must outlive this object. `strength`: the bound after the last epoch.
  Smoothing(const SupernetEngine& engine, const SupernetProblem& supernet, double strength)
      : Guard(engine), engine_(engine), supernet_(supernet), strength_(strength) {}

  double set_epoch(const SearchTime& now) override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;

 private:
  const SupernetEngine& engine_;
  const SupernetProblem& supernet_;
  double strength_;
  double bound_ = 0;
};

}  // namespace bilevel::nas
