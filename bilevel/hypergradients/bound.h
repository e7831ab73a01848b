#pragma once
// How far an estimate can be from the exact hypergradient, df/dx - C H^-1 df/dw at the solved inner problem.
//
// Any v at all gives a bound: with e = estimate - (df/dx - C v) and everything at the final iterate w on the
// full sets,
//
//     error <= |e| + (L_fx + |C| L_p / mu + tau P / mu + |C| rho P / mu^2) delta + |C| |p - H v| / mu
//     delta = |grad_w g| / mu >= |w - w*|,   P = |p| + L_p delta >= |df/dw| at w*
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
// The bound is rigorous where the problem states two things: mu, |C| and the Lipschitz constants
// (Problem::loss_constants), |C| being taken at w where it has no bound over all w, and how far its computed
// derivatives can be from exact ones by rounding (BoundedEvaluation, core/rounding.h), which enters the three
// measured lengths. Elsewhere the constants are estimated from the spectrum at w and from a second point in
// the direction of the gradient at the distance delta, and rounding is guessed: the bound is called
// estimated. A Lipschitz constant seen between two points is none, and Lanczos's method can miss the smallest
// eigenvalue.

#include <optional>

#include "bilevel/core/rounding.h"
#include "bilevel/hypergradients/estimator.h"

namespace bilevel {

// What all bounds at one (w, x) share: found with the first and kept for the others.
struct KnownConstants {
  bool found = false;
  std::optional<LossConstants> constants;
  std::optional<EvaluationErrors> errors;
};

// Fills result.bound, or result.no_bound where there is none. Its gradients and products are counted. An
// unrolled estimate must have been made with the request's `with_bound`.
void add_error_bound(Oracle& oracle, const HypergradientRequest& request, Hypergradient& result,
                     KnownConstants* known = nullptr);

// A bound as long as the estimate itself holds for the zero vector too: it does not even tell the sign.
bool is_vacuous(const ErrorBound& bound, double estimate_norm);

}  // namespace bilevel
