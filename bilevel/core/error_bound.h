#pragma once
// How far a hypergradient can be from the exact one, and what that is known from.

#include <limits>
#include <string_view>

namespace bilevel {

// Constants of the two losses at one x that hold for all w: what a rigorous bound is made of. An upper bound
// of each will do, a lower one for strong_convexity.
struct LossConstants {
  double strong_convexity = 0;  // mu: no eigenvalue of d2g/dw dw is below it
  double smoothness = 0;        // L: none is above it
  double cross_norm = 0;        // |C|, of the cross derivative d2g/dx dw
  double outer_x = 0;           // Lipschitz constant in w of df/dx
  double outer_w = 0;           // of df/dw
  double cross = 0;             // of C (tau)
  double hessian = 0;           // of H (rho)
};

enum class BoundKind {
  none,       // not asked for, or there is none: a curvature that is not positive
  rigorous,   // from the problem's own constants: the error is not larger
  estimated,  // from what was measured nearby: the size to expect
};
std::string_view name_of(BoundKind kind);

struct ErrorBound {
  BoundKind kind = BoundKind::none;
  double value = std::numeric_limits<double>::quiet_NaN();  // on |estimate - exact|, absolute
};

}  // namespace bilevel
