#pragma once
// The loss of rows that were held out, as a function of the logarithms of the columns' penalties: what tuning
// minimises. One class for each loss of the regression.

#include <cstdint>
#include <memory>

#include "bilevel/core/tensor.h"
#include "bilevel/tables/cross_fit.h"
#include "bilevel/tables/table_loss.h"

namespace bilevel {

// Unlike an ExampleSet scaled, with training and validation rows together: a fold holds each out; below 0 =
// none does.
struct HeldOutRows {
  Tensor scaled;   // with the column of ones last
  Tensor labels;   // int64; all 0 with the squared loss
  Tensor targets;  // rows x classes, the labels one-hot; or rows x 1, what is to be predicted
  Tensor fold;
  int64_t folds = 0;
  TableLoss loss = TableLoss::cross_entropy;

  int64_t columns() const { return scaled.size(1) - 1; }
  HeldOutRows subset(const Tensor& index) const;
  // What a final model is fitted to: all rows that some fit may see.
  Tensor fitted() const;
  Tensor held_out_targets() const;
  // With a handful of rows: a fold without rows, or all rows in one fold, leaves nothing to measure or fit.
  bool leaves_a_fold_empty() const;
};

// R2 of predictions that miss the targets by these squares.
double determination(const Tensor& squares, const Tensor& targets);

class HeldOutLoss {
 public:
  static std::unique_ptr<HeldOutLoss> of(const HeldOutRows& rows);  // which must outlive it
  virtual ~HeldOutLoss() = default;
  HeldOutLoss(const HeldOutLoss&) = delete;
  HeldOutLoss& operator=(const HeldOutLoss&) = delete;

  // Minus the mean log-likelihood: of the labels; or of targets around their predictions with the variance
  // that is most likely, up to a constant: half the logarithm of the mean square. A prior on the logarithms
  // thus weighs in rows with either. `logarithms`: one for each column, or columns x classes.
  virtual double operator()(const Tensor& logarithms) = 0;
  // Where it was evaluated last.
  virtual Tensor gradient() = 0;
  // The fits of another, of rows in the same folds, as a start.
  virtual void start_from(const HeldOutLoss& other) = 0;
  // One per held-out row: the cross entropy, or the square of the difference.
  virtual Tensor losses() const = 0;
  // Prediction - target, held-out rows x classes: of probabilities; or of the numbers themselves.
  virtual Tensor differences() const = 0;
  // The accuracy in percent; or the coefficient of determination.
  virtual double score() const = 0;
  // A model of all rows that some fit may see, (columns + 1) x classes.
  virtual Tensor refit(const Tensor& logarithms, FitCounts& counts) const = 0;
  // Losses of these rows under that model.
  virtual Tensor losses_of(const HeldOutRows& rows, const Tensor& weights) const = 0;
  virtual const FitCounts& counts() const = 0;
  virtual int64_t most_outer_gradients() const = 0;  // that a search should spend

  double count() const { return count_; }  // of held-out rows
  int64_t columns() const { return rows_.columns(); }

 protected:
  explicit HeldOutLoss(const HeldOutRows& rows);
  const HeldOutRows& rows_;
  Tensor held_;  // rows x 1: 1 where a fold holds the row out
  double count_;
};

}  // namespace bilevel
