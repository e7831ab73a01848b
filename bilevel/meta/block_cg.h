#pragma once
// Conjugate gradients on many systems at once: the matrix is block-diagonal, one block for each task, and
// each block has step lengths, an end and a status of its own. So tasks solved together get what they get one
// after another, where one step length for all would mix them.

#include <cstdint>
#include <string_view>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/tensor.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel::meta {

// `b` is `blocks` vectors of equal size behind each other. Options and statuses as of conjugate_gradient,
// with the worst block's status and relative residual, and as many iterations as the slowest block took; a
// block that has ended rests while others go on. `residuals` are those of the whole vector.
LinearResult block_conjugate_gradient(const MatrixProduct& matrix, const Tensor& b, int64_t blocks,
                                      const KrylovSolveOptions& options = {});

struct BlockCgOptions {
  int64_t blocks = 1;
  int64_t steps = 10;             // 0 is legal: the estimate is then df/dx
  double relative_tolerance = 0;  // of each block; 0 = all the steps
  CurvatureOptions curvature = {};
  void validate() const;
};

// AID-CG (hypergradients/cg.h) with blocks.
class BlockCg : public HypergradientEstimator {
 public:
  explicit BlockCg(BlockCgOptions options);
  std::string_view name() const override { return "block-cg"; }
  bool implicit() const override { return true; }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
  BlockCgOptions options_;
};

}  // namespace bilevel::meta
