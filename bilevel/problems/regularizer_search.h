#pragma once
// RegularizedSoftmax as a job: how well a model does on all three sets, and regularisers that stay where the
// inner loop is stable.
//
// A useless feature's x_j would grow for ever, and a rate that was safe at the start would not stay so.
// Gradient descent at rate r is stable where the curvature stays below 2 / r, so x_j has a limit: its ridge
// may take nine tenths of 2 / r less the data's own curvature, which is known at W = 0, where every
// probability is 1/c: X'X / (c N).

#include <map>
#include <string>

#include "bilevel/problems/regularized_softmax.h"
#include "bilevel/problems/regularizer_sets.h"

namespace bilevel {

// Of one set; the accuracy is in percent.
struct SetScores {
  double loss = 0;
  double accuracy = 0;
};

class RegularizerSearch : public RegularizedSoftmax {
 public:
  // A rate of 0 chooses 0.2 / curvature, which leaves a ridge room for eight times the data's curvature, or
  // less where that would not let every regulariser grow tenfold.
  explicit RegularizerSearch(RegularizerSets sets, double rate = 0);

  const RegularizerSets& sets() const { return sets_; }
  double curvature() const { return curvature_; }                              // of the data's term at W = 0
  double rate() const { return rate_; }                                        // of the inner steps
  double largest_curvature() const { return largest_rate_curvature / rate_; }  // that x may lead to
  double largest_outer() const { return largest_outer_; }                      // the limit of x_j

  void project_outer_(Tensor& x) const override;
  // train_loss, train_accuracy, valid_..., and test_... where there is a test set.
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;

 private:
  RegularizerSets sets_;
  static constexpr double largest_rate_curvature = 1.8;  // of 2, where gradient descent would diverge
  double curvature_ = 0, rate_ = 0, largest_outer_ = 0;
};

}  // namespace bilevel
