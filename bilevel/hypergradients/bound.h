#pragma once
// How far an estimate can be from the exact hypergradient, df/dx - C H^-1 df/dw at the solved inner problem.
//
// Any v at all gives a bound: with e = estimate - (df/dx - C v) and everything at the final iterate w on the
// full sets,
//
//     error <= |e| + (L_fx + |C| L_p / mu + tau P / mu + |C| rho P / mu^2) delta + |C| |p - H v| / mu
//     delta = |grad_w g| / mu >= |w - w*|,   P = |p| + L_p delta >= |df/dw| at w*         (math.md, 14)
//
// because C v - C* H*^-1 p* = C H^-1 (H v - p) + C H^-1 (p - p*) + C (H^-1 - H*^-1) p* + (C - C*) H*^-1 p*.
// It does not ask how v was found: damping, the Gauss-Newton matrix, minibatches and differences all show in
// |p - H v| and |e|, both of which are measured. An implicit estimator's v is its solution. Of an unrolled
// one it is the sum of the vectors that C was applied to (ReverseSweep::gathered), whatever the inner
// optimiser: where H and C are constant e = 0 and p - H v is what is left of the adjoint, (I - rate H)^K p;
// elsewhere |e| and the residual measure how much they changed along the steps. Forward mode has no such
// vector, so one is found by a few steps of conjugate gradients, which cost little beside its own T m
// products.
//
// mu, |C| and the Lipschitz constants are the problem's own (Problem::loss_constants): the bound is then
// rigorous, |C| being measured at w where it has no bound over all w. Elsewhere they are estimated from the
// spectrum at w and from a second point in the direction of the gradient at the distance delta: the bound is
// called estimated, because a Lipschitz constant seen between two points is none.

#include "bilevel/hypergradients/estimator.h"

namespace bilevel {

// Fills result.bound, or result.no_bound where there is none. Its gradients and products are counted.
void bound_error(Oracle& oracle, const HypergradientRequest& request, Hypergradient& result);

}  // namespace bilevel
