#include "bilevel/problems/softmax_constants.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bilevel/core/enclosure.h"
#include "bilevel/core/rounding.h"

namespace bilevel {
namespace {

constexpr int64_t most_assembled = 1000;       // rows or features: a second of work
constexpr int64_t most_numbers = 100'000'000;  // of the dense matrix
constexpr int quotient_iterations = 20;
constexpr double unit_of_constants = std::numeric_limits<double>::epsilon();
constexpr double rounded_up = 1 + 1e-14;  // for the roundings of a product of a few constants
const double third_moment = std::sqrt(2.0) / (3 * std::sqrt(3.0));

Tensor as_dense(const FeatureMatrix& rows) {
  if (!rows.is_sparse()) return rows.dense().to(at::kDouble);
  const auto& csr = rows.by_rows();
  const Tensor counts = csr.offsets.slice(0, 1) - csr.offsets.slice(0, 0, -1);
  const Tensor row = at::repeat_interleave(counts);
  return at::zeros({rows.rows(), rows.features()}, at::kDouble)
      .index_put({row, csr.indices.to(at::kLong)}, csr.values.to(at::kDouble));
}

// |X| v and |X|' u, in double precision.
Tensor absolute_scores(const FeatureMatrix& rows, const Tensor& v) {
  if (!rows.is_sparse()) return rows.dense().abs().to(at::kDouble).mv(v);
  const auto& csr = rows.by_rows();
  const Tensor counts = csr.offsets.slice(0, 1) - csr.offsets.slice(0, 0, -1);
  const Tensor terms = csr.values.abs().to(at::kDouble) * v.index_select(0, csr.indices.to(at::kLong));
  return at::zeros({rows.rows()}, at::kDouble).index_add_(0, at::repeat_interleave(counts), terms);
}
Tensor absolute_transposed(const FeatureMatrix& rows, const Tensor& u) {
  if (!rows.is_sparse()) return rows.dense().abs().to(at::kDouble).t().mv(u);
  const auto& csr = rows.by_rows();
  const Tensor counts = csr.offsets.slice(0, 1) - csr.offsets.slice(0, 0, -1);
  const Tensor terms = csr.values.abs().to(at::kDouble) * u.index_select(0, at::repeat_interleave(counts));
  return at::zeros({rows.features()}, at::kDouble).index_add_(0, csr.indices.to(at::kLong), terms);
}

// For A with entries >= 0 and any v > 0 the largest eigenvalue is at most max (A v)_j / v_j.
double quotient_bound(const FeatureMatrix& rows, const Tensor& weights) {
  Tensor v = at::ones({rows.features()}, at::kDouble);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < quotient_iterations; ++i) {
    const Tensor product = absolute_transposed(rows, weights * absolute_scores(rows, v));
    best = std::min(best, (product / v).max().item<double>());
    if (best == 0) break;
    // Kept away from zero, where a feature that no row has would end.
    v = product / product.max() + 1e-6;
  }
  // Nothing cancels: every number is a sum of terms of one sign, two products and a quotient deep.
  return best * (1 + 2 * accumulated(rows.rows() + rows.features() + 8, unit_of_constants));
}

double longest_row(const FeatureMatrix& rows) { return row_lengths(rows).max().item<double>(); }

}  // namespace

Tensor equal_weights(const FeatureMatrix& rows) {
  return at::full({rows.rows()}, 1 / static_cast<double>(rows.rows()), at::kDouble);
}

double largest_gram_bound(const FeatureMatrix& rows, const Tensor& weights) {
  const Tensor a = weights.detach().to(at::kCPU, at::kDouble);
  if (std::min(rows.rows(), rows.features()) > most_assembled ||
      rows.rows() * rows.features() > most_numbers) {
    return quotient_bound(rows, a);
  }
  const Tensor scaled = as_dense(rows) * a.sqrt().unsqueeze(1);
  const double size = norm_above(scaled);
  return squared_norm_above(scaled) +
         16 * unit_of_constants * size * size;  // the weights and their roots are rounded
}

Tensor row_lengths(const FeatureMatrix& rows) {
  const double lengthened = 1 + accumulated(rows.features() + 8, unit_of_constants);
  if (!rows.is_sparse()) return rows.dense().to(at::kDouble).norm(2, 1) * lengthened;
  const auto& csr = rows.by_rows();
  const Tensor counts = csr.offsets.slice(0, 1) - csr.offsets.slice(0, 0, -1);
  return at::zeros({rows.rows()}, at::kDouble)
             .index_add_(0, at::repeat_interleave(counts), csr.values.to(at::kDouble).square())
             .sqrt() *
         lengthened;
}

LossConstants weighted_softmax_constants(const FeatureMatrix& train, const FeatureMatrix& valid,
                                         const Tensor& x, double regularization) {
  const auto count = static_cast<double>(train.rows());
  const Tensor sigmoid = x.detach().to(at::kCPU, at::kDouble).sigmoid();
  const double s = largest_gram_bound(train, sigmoid / count);
  // Row i of C is a'_i (s - e_y) phi_i', with a'_i the weight's derivative.
  // 1 - sigmoid is sigmoid(-x), without the cancellation.
  const Tensor falling = (-x.detach().to(at::kCPU, at::kDouble)).sigmoid();
  const double c = std::sqrt(largest_gram_bound(train, (sigmoid * falling / count).square())) * rounded_up;
  const double longest = longest_row(train);
  return {.strong_convexity = 2 * regularization,
          .smoothness = (0.5 * s + 2 * regularization) * rounded_up,
          .cross_norm = std::sqrt(2.0) * c * rounded_up,
          .outer_x = 0,
          .outer_w = 0.5 * largest_gram_bound(valid, equal_weights(valid)),
          .cross = 0.5 * longest * c * rounded_up,
          .hessian = third_moment * longest * s * rounded_up};
}

LossConstants ridge_softmax_constants(const FeatureMatrix& train, const FeatureMatrix& valid,
                                      const Tensor& ridge) {
  const double s = largest_gram_bound(train, equal_weights(train));
  const double largest =
      ridge.max().item<double>() * rounded_up;  // exp is right to 4 units in the last place
  return {.strong_convexity = ridge.min().item<double>() / rounded_up,
          .smoothness = (0.5 * s + largest) * rounded_up,
          .cross_norm = std::numeric_limits<double>::infinity(),
          .outer_x = 0,
          .outer_w = 0.5 * largest_gram_bound(valid, equal_weights(valid)),
          // (C v)_j = ridge_j <W_j, v_j>: linear in W, by at most the largest ridge.
          .cross = largest,
          .hessian = third_moment * longest_row(train) * s * rounded_up};
}

FeatureMatrix dense_rows(const Tensor& features) {
  return FeatureMatrix::from_dense(features.detach().cpu(), FeatureMatrix::Storage::dense);
}

}  // namespace bilevel
