#pragma once
// Which inner steps suit a spectrum: the rate, the momentum and what one step then shrinks the error by.

#include <cstdint>

#include "bilevel/core/inner.h"

namespace bilevel {

// By how much one step shrinks the slowest error on a quadratic whose curvature runs from `smallest` to
// `largest`: the spectral radius of the step, above 1 where it diverges. NaN for adam, whose steps know no
// curvature.
double step_contraction(const InnerOptions& options, double smallest, double largest);

// The rate of this optimiser (at its momentum) that shrinks the slowest error most; NaN for adam.
double best_inner_rate(const InnerOptions& options, double smallest, double largest);

// What the user decided; the rest is chosen.
struct InnerGiven {
  bool optimizer = false, momentum = false, rate = false, steps = false;
};
// Rate 1/L, where a Neumann series at the same rate contracts along every direction and which stays safe
// while x moves the curvature by up to a factor of two (2 / farthest where it may move it more). Nesterov's
// momentum stands less, so that its rate is one that `farthest`, the largest curvature that x may lead to,
// allows. Gradient descent where it is at most twice as slow as Nesterov's momentum at its best for that
// rate, (1 - q) / (1 + q) with q = sqrt(rate mu). Numbers have few digits, so that they can be typed. A rate
// that cannot be chosen (adam, no positive curvature) stays what it was.
InnerOptions plan_inner(InnerOptions options, const InnerGiven& given, double smallest, double largest,
                        double farthest = 0);

// Steps until an error shrinks by `factor` < 1; the largest integer where it never does.
int64_t steps_to_shrink(double contraction, double factor);

}  // namespace bilevel
