#pragma once
// Cleaning a set of noisy labels: any bilevel algorithm learns one weight per training example from a clean
// validation set, examples of low weight are suspects, and a model trained on the weighted set is compared
// with one trained on all labels alike. This is K-RMD's section 4.2.1 as a job.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/algorithms/best_point.h"
#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/core/tensor.h"
#include "bilevel/problems/cleaning_model.h"
#include "bilevel/problems/cleaning_sets.h"

namespace bilevel {

struct CleanOptions {
  std::string algorithm = "krmd";
  AlgorithmSettings settings = {};
  SolveOptions solve = {};
  double threshold = -3;      // x_i below this flags example i: K-RMD's, a weight of 0.047
  int64_t most_suspects = 0;  // 0 = all that are flagged
  // Training of the final model and of the baseline, from the first w: Nesterov steps on the full set until
  // the gradient is this much smaller than at the start, or steps on batches as many as are given.
  int64_t final_steps = 2000;
  int64_t final_batch = 0;
  double final_tolerance = 1e-3;
  double final_rate = 0;  // 0 = settings.inner.rate
  void validate(int64_t examples) const;
};

// What works for a model unless a user knows better: K-RMD's set-up, with the inner rate from the curvature
// (below) where the model is convex.
CleanOptions default_clean_options(const CleaningModel& model);

// The largest eigenvalue of the inner Hessian at the first w with every example at weight 1, the most that a
// sigmoid can give: 1 over this is a rate that the learned weights cannot make unstable from there.
double start_curvature(const Problem& problem, uint64_t seed);

// How well flagged examples agree with a truth.
struct Detection {
  int64_t flagged = 0, bad = 0, both = 0;
  double precision() const;  // 0 where nothing is flagged
  double recall() const;     // 0 where nothing is bad
  double f1() const;
};
Detection detect(const Tensor& flagged, const Tensor& bad);

struct TrainedModel {
  Tensor w;
  int64_t steps = 0;
  double gradient_norm = 0;   // |grad_w g| at the end, on the full set
  double test_accuracy = -1;  // percent; negative = there is no test set
  double valid_accuracy = 0;
  double valid_loss = 0;
};

struct CleanResult {
  bool finished =
      false;  // false: interrupted or ended badly, as the reason of `solve` says; there is no more
  SolveSummary solve;
  double inner_gradient_norm = 0;  // |grad_w g| where the algorithm ended, on the full set
  double first_gradient_norm = 0;  // and at its first w: the measure of how solved the inner problem is
  // On the learned weights: those of the smallest validation loss along the run or those at its end,
  // whichever model does better on the validation set.
  TrainedModel cleaned;
  TrainedModel baseline;  // all weights 1, on the labels as given
  // The learned weights do no better than all labels alike: `cleaned` is the baseline, all weights are 1 and
  // nothing is flagged. The loss that the learned ones gave is in learned_valid_loss.
  bool kept_baseline = false;
  double learned_valid_loss = 0;
  int64_t best_iteration = 0;                // of the weights that are returned
  Tensor x, weights;                         // of the examples; weights = sigmoid(x)
  Tensor suggested;                          // int64: the cleaned model's classes for the training examples
  std::vector<int64_t> suspects;             // positions of the flagged, lowest weight first
  int64_t flagged = 0;                       // how many are flagged, listed or not
  std::optional<Detection> wrong, replaced;  // where the truth is known
  OracleCounts counts;                       // of the algorithm and of both trainings
  std::vector<std::string> warnings;
};

struct CleanHooks {
  std::function<void(const std::string& what)> progress = {};
  // Runs the algorithm in place of solve(): one that saves its state, or resumes from one.
  Solver solve = {};
  // Asked along the final trainings. They are short beside the algorithm, and the same every time: a resumed
  // run repeats them.
  std::function<bool()> interrupted = {};
};

// Throws NotFiniteError where a final training leaves the finite numbers.
CleanResult clean(const CleaningSets& sets, const CleaningModel& model, const CleanOptions& options,
                  const CleanHooks& hooks = {});

}  // namespace bilevel
