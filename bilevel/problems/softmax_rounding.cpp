#include "bilevel/problems/softmax_rounding.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "bilevel/problems/softmax_constants.h"

namespace bilevel {
namespace {

const double root_two = std::sqrt(2.0);
constexpr double upwards = 1 + 1e-9;  // for the roundings of these few lines themselves

// What is known of every example: vectors in double precision.
struct RoundedExamples {
  RoundedExamples(const FeatureMatrix& rows, const WeightLayout& layout, const Tensor& w)
      : epsilon(machine_epsilon(w)),
        lengths(row_lengths(rows)),
        scores(accumulated(layout.features + 1, epsilon)),
        classes(accumulated(layout.classes + 1, epsilon)),
        sums(accumulated(rows.rows() + 4, epsilon)) {
    const Tensor matrix = layout.matrix(w.detach().to(at::kCPU, at::kDouble));  // features x classes
    const double longest = matrix.norm(2, 0).max().item<double>() * upwards;
    const Tensor largest_score = lengths * longest;
    const Tensor lambda =
        (2 * scores + 4 * epsilon) * largest_score + epsilon * (2 * static_cast<double>(layout.classes) + 16);
    rho = lambda.expm1() * upwards;
  }

  // |computed - exact| of sum_i a_i (s_i - e_y) phi_i'.
  double gradient(const Tensor& weights) const {
    const Tensor each = rho + root_two * (sums + 16 * epsilon);
    return (weights * lengths * each).sum().item<double>() * upwards;
  }
  double hessian(const Tensor& weights) const {
    const Tensor each =
        (3 * rho + 2 * scores + classes + 16 * epsilon) * (1 + rho).square() + sums * (1 + rho).square();
    return (weights * lengths.square() * each).sum().item<double>() * upwards;
  }

  double epsilon;
  Tensor lengths, rho;
  double scores, classes, sums;  // gamma of d + 1, c + 1 and N + 4
};

double outer_gradient_error(const FeatureMatrix& valid, const WeightLayout& layout, const Tensor& w) {
  return RoundedExamples(valid, layout, w).gradient(equal_weights(valid));
}

}  // namespace

EvaluationErrors weighted_softmax_errors(const FeatureMatrix& train, const FeatureMatrix& valid,
                                         const WeightLayout& layout, const Tensor& w, const Tensor& x,
                                         double regularization) {
  const RoundedExamples e(train, layout, w);
  const Tensor sigmoid = x.detach().to(at::kCPU, at::kDouble).sigmoid();
  const Tensor weights = sigmoid / static_cast<double>(train.rows());
  const Tensor slopes = weights * (1 - sigmoid);
  EvaluationErrors errors;
  const double regularizer = 2 * regularization * (e.sums + 8 * e.epsilon) * upwards;
  errors.gradient = e.gradient(weights) + regularizer * norm_above(w);
  errors.hessian = e.hessian(weights) + regularizer;
  // 1 - sigmoid cancels: its error is that of 1, not of the difference.
  const Tensor each =
      slopes * (e.rho + root_two * (e.scores + e.classes + e.sums + 8 * e.epsilon)) * (1 + e.rho) +
      16 * root_two * e.epsilon * weights;
  errors.cross = norm_above(each * e.lengths) * upwards;
  errors.outer_w = outer_gradient_error(valid, layout, w);
  return errors;
}

EvaluationErrors ridge_softmax_errors(const FeatureMatrix& train, const FeatureMatrix& valid,
                                      const WeightLayout& layout, const Tensor& w, const Tensor& ridge) {
  const RoundedExamples e(train, layout, w);
  const Tensor weights = equal_weights(train);
  const Tensor of_features = ridge * layout.matrix(w.detach().to(at::kCPU, at::kDouble)).norm(2, 1) * upwards;
  EvaluationErrors errors;
  const double each = e.sums + 16 * e.epsilon;  // exp is right to 4 units in the last place
  errors.gradient = e.gradient(weights) + each * norm_above(of_features);
  errors.hessian = e.hessian(weights) + each * ridge.max().item<double>();
  // (C v)_j = ridge_j <W_j, v_j>, so that |C| is the largest ridge_j |W_j|.
  errors.cross_norm = of_features.max().item<double>() * upwards;
  errors.cross = (e.classes + 16 * e.epsilon) * errors.cross_norm;
  errors.outer_w = outer_gradient_error(valid, layout, w);
  return errors;
}

}  // namespace bilevel
