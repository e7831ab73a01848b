#pragma once
// How far derivatives computed in floating point can be from the exact ones: the part of a rigorous error
// bound that rounding adds (hypergradients/bound.h).
//
// The rules are those of Higham, "Accuracy and Stability of Numerical Algorithms" (2002), chapter 3. With u
// the unit roundoff, a sum of k products errs by at most gamma_k = k u / (1 - k u) times the sum of their
// absolute values, in whatever order it is added up and with or without fused operations. Elementary
// functions (exp, sin, sigmoid) are taken to be right to 4 units in the last place. What underflows is added
// apart (underflow_of); a number that is not finite has no bound at all.

#include <cstdint>
#include <limits>
#include <optional>

#include "bilevel/core/problem.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

// |computed - exact| of each derivative at one (w, x) on the full sets, the exact one being that of the
// losses with the data as it is stored. `hessian` and `cross` are for vectors of length 1. A last rounding of
// each result itself is the caller's to add.
struct EvaluationErrors {
  double gradient = 0;  // of grad_w g
  double outer_w = 0;   // of df/dw
  double outer_x = 0;   // of df/dx
  double hessian = 0;   // of H v
  double cross = 0;     // of C v and C'u
  // Not less than |C| at this w, for problems whose C has no bound over all w; infinity = no closed form.
  double cross_norm = std::numeric_limits<double>::infinity();
};

// A problem that can say this of itself. With `Problem::loss_constants` it makes error bounds rigorous.
class BoundedEvaluation {
 public:
  virtual ~BoundedEvaluation() = default;
  // nullopt = not known, as of a wrapped problem that is not one of these.
  virtual std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const = 0;
};
std::optional<EvaluationErrors> evaluation_errors_of(const Problem& problem, const Tensor& w,
                                                     const Tensor& x);

double machine_epsilon(const Tensor& t);  // 2 u of its type
// What numbers too small for the type can take from a result: of a derivative, a hundred million times the
// smallest normal number, for that many products that vanish; of a length, the root of the squares that
// vanish, which is 1e-19 in single precision.
double underflow_of(const Tensor& t);
double vanishing_length(const Tensor& t);
// gamma_k of a type with that epsilon; infinity where k u >= 1.
double accumulated(int64_t operations, double epsilon);
// Not less than |t|: in double precision, rounded up.
double norm_above(const Tensor& t);
// |A| |v|, entry by entry in double precision: what the errors of A v are proportional to.
Tensor absolute_product(const Tensor& matrix, const Tensor& v);
// Of factor * A'(A w - b), the gradient of a sum of squares, computed by rows: |computed - exact|.
double squares_gradient_error(const Tensor& matrix, const Tensor& target, const Tensor& w, double factor);

}  // namespace bilevel
