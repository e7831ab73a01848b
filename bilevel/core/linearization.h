#pragma once
// Second derivatives of the inner loss g at one point (w, x, batch), as products with vectors. A problem with
// a closed form writes its own; every other problem gets them from automatic differentiation
// (core/autograd.h).

#include <utility>

#include "bilevel/core/tensor.h"

namespace bilevel {

class Linearization {
 public:
  virtual ~Linearization() = default;
  virtual Tensor gradient() = 0;                         // grad_w g
  virtual Tensor hessian(const Tensor& v) = 0;           // (d2g/dw dw) v
  virtual Tensor cross(const Tensor& v) = 0;             // (d2g/dx dw) v, of x's size
  virtual Tensor cross_transposed(const Tensor& u) = 0;  // (d2g/dw dx) u, of w's size: forward mode
  // Both products with one vector: reverse mode needs the pair at every step, and one pass can give both.
  virtual std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) { return {hessian(v), cross(v)}; }
  // J' L'' J v plus the regulariser's Hessian product, for problems that expose outputs and loss apart. The
  // default throws std::invalid_argument.
  virtual Tensor gauss_newton(const Tensor& v);
};

}  // namespace bilevel
