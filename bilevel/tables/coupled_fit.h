#pragma once
// Softmax regressions of several tasks that pull at each other, solved to a tolerance by Newton's method, for
// several choices of rows (folds) at once:
//
//     min_w  sum_i CE_i(w of its task) + sum_ij C_ij |w_i - w_j|^2 + rho sum_i |w_i|^2
//
// over ordered pairs, as K-RMD's section 4.2.2 prints it. Intercepts pull at each other too, by a part of C
// of their own, but rho does not hold them: where C = 0 every task is a regression of its own, and where C is
// large all tasks are one.
//
// Every Newton system is solved by conjugate gradients whose preconditioner is the same system with all pairs
// alike, C_ij = c: given the mean model, tasks are then independent, so that it costs one factorisation for
// each task and one for the mean. Where all pairs are alike one iteration is enough.

#include <cstdint>

#include "bilevel/core/tensor.h"
#include "bilevel/tables/cross_fit.h"

namespace bilevel {

// Rows in blocks, one for each task, filled up with zeros to the length of the longest.
struct TaskBlocks {
  Tensor features;  // tasks x rows x columns, the last column ones
  Tensor targets;   // tasks x rows x classes, labels one-hot

  int64_t tasks() const { return features.size(0); }
  int64_t rows() const { return features.size(1); }
  int64_t columns() const { return features.size(2); }
  int64_t classes() const { return targets.size(2); }
};

struct Pulls {
  Tensor coupling;         // C, tasks x tasks, symmetric, at least 0, the diagonal 0
  double regularizer = 0;  // rho
  double intercepts = 1;   // the part of C that intercepts feel
};

struct PullDerivative {
  Tensor coupling;  // by C_ij and C_ji together; the diagonal is 0
  double regularizer = 0;
};

class CoupledFit {
 public:
  // `chosen`: fits x tasks x rows, 1 for the rows of each fit, 0 for the others.
  CoupledFit(const TaskBlocks& blocks, const Tensor& chosen);

  // From the last solution.
  void solve(const Pulls& pulls);
  Tensor scores() const;   // fits x tasks x rows x classes
  Tensor weights() const;  // fits x tasks x columns x classes
  // Of a loss of the scores, exact at the solution: `by_scores` is its derivative by scores().
  PullDerivative derivative(const Tensor& by_scores);

  // The mean over the fits of another as a start.
  void start_from(const CoupledFit& other);
  const FitCounts& counts() const { return counts_; }

 private:
  struct Point;
  struct Preconditioner;
  Tensor pulled(const Tensor& w) const;
  Tensor losses(const Tensor& w) const;  // one for each fit
  Point linearize() const;
  Preconditioner factorize(const Point& point) const;
  Tensor solve_newton(const Point& point, const Tensor& b, double tolerance);

  TaskBlocks blocks_;
  Tensor chosen_;
  Tensor contrasts_;                 // classes x (classes - 1), orthonormal, each adding up to 0
  Tensor w_;                         // fits x tasks x contrasts x columns
  Tensor laplacian_, ridge_, pull_;  // 4 L of C; of each column: 2 rho, and the part of L that it feels
  double mean_pull_ = 0;             // 4 tasks c of the mean c
  FitCounts counts_;
};

}  // namespace bilevel
