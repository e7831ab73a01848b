#pragma once
// SUSTAIN (Khanduri et al. 2021, Algorithm 1): recursive momentum on w and x (recursive_momentum.h), the
// hypergradient by a series of which one summand is drawn,
//
//     v = K rate (I - rate H_1) ... (I - rate H_k) grad_w f,    k uniform on 0 .. K-1, H_i on independent
//     batches
//
// whose expectation is the Neumann series of K summands. k is part of the sample: the old point is evaluated
// with the new k. Even on full sets v is random, and only falling rates (or a small averaging) take that out.
// After the first iteration, which costs half, an iteration costs two inner and two outer gradients, 2 k
// Hessian and two cross products.

#include <cstdint>
#include <string_view>

#include "bilevel/algorithms/recursive_momentum.h"

namespace bilevel {

struct SustainOptions {
  int64_t terms = 10;  // K: (K - 1) / 2 products on average; the variance grows with K
  RecursiveMomentumOptions momentum = {};
  void validate() const;
  static const Fields<SustainOptions>& fields();
};

class Sustain : public RecursiveMomentum {
 public:
  explicit Sustain(const SustainOptions& options);
  std::string_view name() const override { return "sustain"; }

 private:
  HypergradientSample draw(Streams& streams) const override;
  ImplicitSolve solver(const HypergradientSample& sample) const override;

  SustainOptions options_;
};

}  // namespace bilevel
