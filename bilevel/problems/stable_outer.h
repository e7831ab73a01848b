#pragma once
// How far a log regulariser may grow. Its curvature is scale * exp(x), and gradient descent at rate r is
// stable where all curvature stays below 2 / r: nine tenths of that, less the data's own, is left to the
// regulariser.

namespace bilevel {

// The largest x, at least `first`, where the run begins; infinity where the rate is 0. Throws
// std::invalid_argument where the rate is not finite or is negative.
double largest_stable_log(double rate, double curvature_of_data, double scale, double first);

}  // namespace bilevel
