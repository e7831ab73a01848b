#pragma once
// A rate for plain steps of x if none is given. Plain steps have no scale of their own, as Adam's have:
// the entry that moves most gets one, as K-RMD gives its first step a norm.

#include "bilevel/core/oracle.h"
#include "bilevel/core/tensor.h"
#include "bilevel/core/trajectory.h"

namespace bilevel {

// The rate at which the first step along the hypergradient at the trained w (10 steps of CG) moves no entry
// of x by more than `longest`. 0 where there is no such rate: the hypergradient is zero or not finite.
double first_outer_rate(Oracle& oracle, const Tensor& x, Trajectory trained, double longest);
// The same at the solution of the inner problem, as near as L-BFGS comes from w.
double first_outer_rate(Oracle& oracle, const Tensor& x, const Tensor& w, double inner_rate, double longest);

}  // namespace bilevel
