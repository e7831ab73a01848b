#pragma once
// Automatic differentiation of a problem's losses. This is the only file in core, hypergradients and
// algorithms that calls autograd (a test greps for it), and Oracle the only caller that counts: a hidden call
// is a hidden cost.

#include <functional>
#include <memory>

#include "bilevel/core/problem.h"
#include "bilevel/core/tensor.h"

namespace bilevel::autograd {

Tensor inner_gradient(const Problem& problem, const Tensor& w, const Tensor& x,
                      const Batch& batch);  // grad_w g
Tensor inner_gradient_in_outer(const Problem& problem, const Tensor& w, const Tensor& x,
                               const Batch& batch);  // grad_x g
OuterGradients outer_gradients(const Problem& problem, const Tensor& w, const Tensor& x, const Batch& batch);

// Second derivatives on a kept graph: the forward pass and the first backward pass are made once for all
// products.
std::unique_ptr<Linearization> linearize(const Problem& problem, const Tensor& w, const Tensor& x,
                                         const Batch& batch);

// (d function / d x)' u and (d function / d x) u.
using TensorFunction = std::function<Tensor(const Tensor&)>;
Tensor vector_jacobian(const TensorFunction& function, const Tensor& x, const Tensor& u);
Tensor jacobian_vector(const TensorFunction& function, const Tensor& x, const Tensor& u);

}  // namespace bilevel::autograd
