#pragma once
// The value function f(x, w*(x)) and its gradient, at points that algorithms have reached: the yardstick that
// favours none of them. An algorithm's own f(x, w) flatters the one whose w runs ahead of x, or was trained
// on f. The inner problem is solved to the same precision at every point, whatever w it starts from.

#include <cstdint>
#include <optional>
#include <string>

#include "bilevel/core/oracle.h"
#include "bilevel/core/problem.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

struct ValueOptions {
  // |grad_w g| at w*(x), over that at the problem's first w and the same x. Of floats as far as they reach.
  double relative_tolerance = 1e-8;
  int64_t products = 20'000;  // Hessian products at one point: above this it counts as not solved
  void validate() const;      // throws std::invalid_argument
};

struct ValuePoint {
  double value = 0;  // f(x, w*(x))
  // Of the value function. Where a step of -gradient would leave the set that x is kept in: of the part of
  // that step that is left, which is zero at the best x.
  double gradient_norm = 0;
};

// Solutions are kept and begin the next solve where they are nearer than the given w: points along a run are
// close to each other.
class ValueFunction {
 public:
  explicit ValueFunction(const Problem& problem, const ValueOptions& options = {});

  // nullopt where the inner problem was not solved there, and why() says how it ended. `w` = somewhere near.
  std::optional<double> value(const Tensor& x, const Tensor& w);
  std::optional<ValuePoint> point(const Tensor& x, const Tensor& w);
  const std::string& why() const { return why_; }

 private:
  bool solve(const Tensor& x, const Tensor& w);

  ValueOptions options_;
  Oracle oracle_;
  Tensor first_, solution_, linear_solution_;
  std::string why_;
};

}  // namespace bilevel
