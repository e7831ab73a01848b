#pragma once
// What all implicit estimators share: df/dx - C v with v ~ curvature^-1 df/dw. The curvature is the Hessian
// of g, the damped Hessian, or the Gauss-Newton matrix; on networks only the last two are safe, because the
// Hessian there has negative eigenvalues.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "bilevel/hypergradients/estimator.h"

namespace bilevel {

struct CurvatureOptions {
  std::string kind = "hessian";  // hessian, or gauss-newton (needs Problem::inner_parts)
  double damping = 0;            // rho in H + rho I
  // Central differences in place of exact products, as DARTS and iDARTS take them. They evaluate at w +- a
  // step and never write to w; each costs two first derivatives of g, and is counted so.
  bool difference_hessian = false;
  bool difference_cross = false;
  double difference_step = 0.01;  // how far w moves, whatever the vector's norm (DARTS's 0.01 / |v|)
  void validate() const;
  static const Fields<CurvatureOptions>& fields();
};

// Products with the curvature at the final inner iterate. The k-th product may use its own batch; a
// linearization is kept until another batch is asked for.
class CurvatureProducts {
 public:
  CurvatureProducts(Oracle& oracle, const HypergradientRequest& request, CurvatureOptions options);
  Tensor operator()(const Tensor& v, int64_t k);
  MatrixProduct matrix();  // for solvers that need one fixed matrix; throws if several batches were given
  // The cross product, on the same graph where the batch is the same. Undefined where g has no x.
  Tensor cross(const Tensor& v);

 private:
  Linearization& at_batch(const Batch& batch);
  const Batch& hessian_batch(int64_t k) const;

  Oracle& oracle_;
  const HypergradientRequest& request_;
  CurvatureOptions options_;
  std::unique_ptr<Linearization> linearization_;
  Batch linearized_batch_;
};

// df/dw and df/dx at the final iterate, then `solve`, then df/dx - C v.
using ImplicitSolve = std::function<LinearResult(CurvatureProducts& products, const Tensor& p)>;
Hypergradient implicit_hypergradient(Oracle& oracle, const HypergradientRequest& request,
                                     const CurvatureOptions& curvature, const ImplicitSolve& solve);

// What `summands` of a Neumann series leave (iDARTS's Theorem 1); NaN where the theorem does not hold.
double series_theory(const TheoryInputs& inputs, double rate, int64_t summands);

}  // namespace bilevel
