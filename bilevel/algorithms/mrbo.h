#pragma once
// MRBO (Yang, Ji and Liang 2021, "Provably faster algorithms for bilevel optimization", Algorithm 1):
// recursive momentum on w and x (recursive_momentum.h), the hypergradient by a Neumann series of fixed length
// whose K products take K independent batches,
//
//     v = rate sum_{j=0..K} prod (I - rate H(B_i)) grad_w f
//
// After the first iteration, which costs half, an iteration costs two inner and two outer gradients, 2 K
// Hessian and two cross products.

#include <cstdint>
#include <string_view>

#include "bilevel/algorithms/recursive_momentum.h"

namespace bilevel {

struct MrboOptions {
  int64_t terms = 10;  // K: Hessian products; the series' error falls like (1 - rate mu)^(K+1)
  RecursiveMomentumOptions momentum = {};
  void validate() const;
  static const Fields<MrboOptions>& fields();
};

class Mrbo : public RecursiveMomentum {
 public:
  explicit Mrbo(const MrboOptions& options);
  std::string_view name() const override { return "mrbo"; }

 private:
  HypergradientSample draw(Streams& streams) const override;
  ImplicitSolve solver(const HypergradientSample& sample) const override;

  MrboOptions options_;
};

}  // namespace bilevel
