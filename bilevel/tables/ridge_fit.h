#pragma once
// Ridge regression on a scaled table in closed form, with an intercept that no penalty holds:
//
//     min_{w, b}  1/2 sum_i (y_i - b - X_i w)^2 + 1/2 sum_j penalty_j w_j^2
//
// Centring the rows takes the intercept out, and w = (X'X + P)^-1 X'y is one Cholesky factorisation: of that
// matrix, or, where there are more columns than rows, of I + X P^-1 X'.

#include <cstdint>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/tables/cross_fit.h"

namespace bilevel {

class RidgeSystem {
 public:
  // `rows`: scaled, with the column of ones last. `targets`: rows x 1.
  RidgeSystem(const Tensor& rows, const Tensor& targets);

  // Factorises for these penalties, one for each column but the last, all above 0.
  void set_penalty(const Tensor& penalty);
  // (X'X + P)^-1 b.
  Tensor solve(const Tensor& b) const;
  // (columns + 1) x 1, the intercept last.
  Tensor weights() const;
  // The rows without their column of ones, moved as those of the system are.
  Tensor centred(const Tensor& rows) const;

 private:
  bool by_columns() const { return gram_.defined(); }
  Tensor rows_, mean_, product_;  // centred; X'y
  double target_mean_ = 0;
  Tensor gram_;  // X'X; not defined where there are more columns than rows
  Tensor penalty_, factor_;
};

// Fitted once without each fold, as CrossFit does it for softmax regression.
class RidgeCrossFit {
 public:
  // `fold`: below 0 for rows that are never held out.
  RidgeCrossFit(const Tensor& rows, const Tensor& targets, const Tensor& fold, int64_t folds);

  // Predictions of every row that some fold holds out, rows x 1; 0 for the others.
  Tensor held_out_scores(const Tensor& logarithms);
  // The derivative of a loss of these predictions by the logarithms: `by_scores` is that by the predictions.
  Tensor derivative(const Tensor& by_scores);

  const FitCounts& counts() const { return counts_; }

 private:
  struct Part {
    RidgeSystem system;
    Tensor held_index, held;  // positions and centred rows
    Tensor held_with_ones, weights;
  };
  int64_t rows_;
  std::vector<Part> parts_;
  Tensor penalty_;
  FitCounts counts_;
};

}  // namespace bilevel
