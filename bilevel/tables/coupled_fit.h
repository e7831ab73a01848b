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
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/tables/cross_fit.h"

namespace bilevel {

// Unlike an ExampleSet scaled, and with labels as the fit reads them: one-hot.
struct CoupledRows {
  Tensor features;  // rows x columns, the last column ones
  Tensor targets;   // rows x classes, labels one-hot
  Tensor task;      // int64, 0 .. tasks-1
  int64_t tasks = 0;
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
  // `chosen`: fits x rows, 1 for the rows of each fit, 0 for the others.
  CoupledFit(const CoupledRows& rows, const Tensor& chosen);

  // From the last solution. Throws std::runtime_error where a number is not finite; fits that end before
  // their tolerance are counted.
  void solve(const Pulls& pulls);
  Tensor scores() const;   // fits x rows x classes
  Tensor weights() const;  // fits x tasks x columns x classes
  // Of a loss of the scores, exact at the solution: `by_scores` is its derivative by scores().
  PullDerivative derivative(const Tensor& by_scores);

  // The mean over the fits of another as a start.
  void start_from(const CoupledFit& other);
  const FitCounts& counts() const { return counts_; }

 private:
  struct Point;
  struct Preconditioner;
  struct Direction;
  // Tasks of similar sizes, their rows filled up with zeros to the length of the longest, which is at most
  // twice theirs. Fits come after rows: they share the features.
  struct Block {
    Tensor tasks;     // which
    Tensor rows;      // which of all rows
    Tensor slots;     // and where they are among tasks x length
    Tensor features;  // tasks x length x columns
    Tensor targets;   // tasks x length x 1 x classes
    Tensor chosen;    // tasks x length x fits
    Tensor left_out;  // tasks x length x fits x 1: where it is 0
  };
  static std::vector<Block> blocks_of(const CoupledRows& rows, const Tensor& chosen);
  Tensor block_scores(const Block& block, const Tensor& w) const;  // tasks x length x fits x classes
  // 0 for rows that a fit does not see: whatever they hold, it is not to matter.
  Tensor fitted_scores(const Block& block, const Tensor& w) const;
  Tensor by_weights(const Block& block, const Tensor& by_scores) const;
  Tensor pulled(const Tensor& w) const;
  Tensor losses(const Tensor& w) const;  // one for each fit
  Point linearize() const;
  Preconditioner factorize(const Point& point) const;
  Direction solve_newton(const Point& point, const Tensor& b, double tolerance);

  int64_t rows_;
  std::vector<Block> blocks_;
  Tensor contrasts_;                 // classes x (classes - 1), orthonormal, each adding up to 0
  Tensor w_;                         // fits x tasks x contrasts x columns
  Tensor laplacian_, ridge_, pull_;  // 4 L of C; of each column: 2 rho, and the part of L that it feels
  double mean_pull_ = 0;             // 4 tasks c of the mean c
  FitCounts counts_;
};

}  // namespace bilevel
