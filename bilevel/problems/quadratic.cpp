#include "bilevel/problems/quadratic.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/enclosure.h"
#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/problems/batch_rows.h"

namespace bilevel {
namespace {

// The full set: two small matrices.
class GramLinearization : public Linearization {
 public:
  GramLinearization(Tensor gradient, Tensor hessian, Tensor cross)
      : gradient_(std::move(gradient)), hessian_(std::move(hessian)), cross_(std::move(cross)) {}

  Tensor gradient() override { return gradient_; }
  Tensor hessian(const Tensor& v) override { return hessian_.mv(v); }
  Tensor cross(const Tensor& v) override { return cross_.mv(v); }
  Tensor cross_transposed(const Tensor& u) override { return cross_.t().mv(u); }

 private:
  Tensor gradient_, hessian_, cross_;
};

// A minibatch: its rows, because their Gram matrix would cost more than the products that use it.
class RowsLinearization : public Linearization {
 public:
  RowsLinearization(Tensor gradient, Tensor inner_rows, Tensor cross_rows, double factor)
      : gradient_(std::move(gradient)),
        inner_rows_(std::move(inner_rows)),
        cross_rows_(std::move(cross_rows)),
        factor_(factor) {}

  Tensor gradient() override { return gradient_; }
  Tensor hessian(const Tensor& v) override { return factor_ * inner_rows_.t().mv(inner_rows_.mv(v)); }
  Tensor cross(const Tensor& v) override { return factor_ * cross_rows_.t().mv(inner_rows_.mv(v)); }
  Tensor cross_transposed(const Tensor& u) override {
    return factor_ * inner_rows_.t().mv(cross_rows_.mv(u));
  }

 private:
  Tensor gradient_, inner_rows_, cross_rows_;
  double factor_;
};

Tensor normal_noise(uint64_t seed, const char* name, int64_t count, double variance) {
  Random random(named_seed(seed, name));
  return random.normal({count}, at::TensorOptions().dtype(at::kDouble)) * std::sqrt(variance);
}

}  // namespace

void QuadraticOptions::validate() const {
  require_at_least("dimension", dimension, 1);
  require_at_least("outer_dimension", outer_dimension, 0);
  if (samples < dimension) {
    throw std::invalid_argument(
        fmt::format("samples = {}: must be at least dimension = {}, or the inner problem has many solutions",
                    samples, dimension));
  }
  require_nonnegative("noise_variance", noise_variance);
}

Quadratic::Quadratic(const QuadraticOptions& options) : options_(options) {
  options_.validate();
  if (options_.outer_dimension == 0) options_.outer_dimension = options_.dimension;
  const int64_t n = options_.dimension;
  const int64_t m = options_.outer_dimension;
  const auto cpu = at::TensorOptions().dtype(at::kDouble);
  auto uniform = [&](const char* name, at::IntArrayRef sizes) {
    Random random(named_seed(options_.seed, name));
    return random.uniform(sizes, cpu);
  };
  const Tensor outer_matrix = uniform("A_o", {options_.samples, n});
  const Tensor inner_matrix = uniform("A_w", {options_.samples, n});
  const Tensor cross_matrix = uniform("A_x", {options_.samples, m});
  const Tensor outer_target =
      outer_matrix.mv(uniform("outer-weights", {n})) +
      normal_noise(options_.seed, "outer-noise", options_.samples, options_.noise_variance);
  const Tensor target = inner_matrix.mv(uniform("inner-weights", {n})) +
                        cross_matrix.mv(uniform("outer-variable", {m})) +
                        normal_noise(options_.seed, "inner-noise", options_.samples, options_.noise_variance);
  // Gram matrices in double, then rounded once: a float Gram matrix of 10,000 terms would lose three digits
  // more.
  hessian_ = (2 * inner_matrix.t().mm(inner_matrix)).to(options_.tensors);
  cross_ = (2 * cross_matrix.t().mm(inner_matrix)).to(options_.tensors);
  linear_ = (-2 * inner_matrix.t().mv(target)).to(options_.tensors);
  outer_matrix_ = outer_matrix.to(options_.tensors);
  outer_target_ = outer_target.to(options_.tensors);
  inner_matrix_ = inner_matrix.to(options_.tensors);
  cross_matrix_ = cross_matrix.to(options_.tensors);
  target_ = target.to(options_.tensors);
}

double Quadratic::scale(const Batch& batch) const {
  return static_cast<double>(options_.samples) / static_cast<double>(batch.size(options_.samples));
}

Tensor Quadratic::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Tensor residual = batch_rows(inner_matrix_, batch).mv(w) + batch_rows(cross_matrix_, batch).mv(x) -
                          batch_rows(target_, batch);
  return scale(batch) * residual.dot(residual);
}

Tensor Quadratic::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  const Tensor residual = batch_rows(outer_matrix_, batch).mv(w) - batch_rows(outer_target_, batch);
  return scale(batch) * residual.dot(residual);
}

Tensor Quadratic::initial_inner(uint64_t seed) const {
  return Random(named_seed(seed, "quadratic-w")).uniform({options_.dimension}, options_.tensors);
}

Tensor Quadratic::initial_outer(uint64_t seed) const {
  return Random(named_seed(seed, "quadratic-x")).uniform({options_.outer_dimension}, options_.tensors);
}

Tensor Quadratic::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  if (batch.is_full()) return hessian_.mv(w) + cross_.t().mv(x) + linear_;
  const Tensor rows = batch_rows(inner_matrix_, batch);
  const Tensor residual = rows.mv(w) + batch_rows(cross_matrix_, batch).mv(x) - batch_rows(target_, batch);
  return 2 * scale(batch) * rows.t().mv(residual);
}

std::unique_ptr<Linearization> Quadratic::linearize(const Tensor& w, const Tensor& x,
                                                    const Batch& batch) const {
  Tensor gradient = inner_gradient(w, x, batch);
  if (batch.is_full()) return std::make_unique<GramLinearization>(std::move(gradient), hessian_, cross_);
  return std::make_unique<RowsLinearization>(std::move(gradient), batch_rows(inner_matrix_, batch),
                                             batch_rows(cross_matrix_, batch), 2 * scale(batch));
}

// H and C are constant and f is quadratic, so these are eigenvalues and a singular value.
std::optional<LossConstants> Quadratic::loss_constants(const Tensor& /*x*/) const {
  return LossConstants{.strong_convexity = smallest_eigenvalue_below(hessian_),
                       .smoothness = largest_eigenvalue_above(hessian_),
                       .cross_norm = std::sqrt(squared_norm_above(cross_)) * (1 + 1e-15),
                       .outer_w = 2 * squared_norm_above(outer_matrix_)};
}

// g is that of the matrices 2 A_w'A_w and 2 A_x'A_w as they are stored, each rounded once, and of the first
// one's symmetric part.
std::optional<EvaluationErrors> Quadratic::evaluation_errors(const Tensor& w, const Tensor& x) const {
  const double epsilon = machine_epsilon(w);
  const int64_t n = options_.dimension, m = options_.outer_dimension;
  const double asymmetry = 0.5 * norm_above(hessian_ - hessian_.t());
  EvaluationErrors errors;
  errors.gradient = accumulated(std::max(n, m) + 3, epsilon) *
                        norm_above(absolute_product(hessian_, w) + absolute_product(cross_.t(), x) +
                                   linear_.to(at::kDouble).abs()) +
                    asymmetry * norm_above(w);
  errors.hessian = accumulated(n, epsilon) * norm_above(hessian_) + asymmetry;
  errors.cross = accumulated(std::max(n, m), epsilon) * norm_above(cross_);
  errors.outer_w = squares_gradient_error(outer_matrix_, outer_target_, w, 2);
  return errors;
}

Tensor Quadratic::solution(const Tensor& x) const {
  const Tensor right = -(cross_.t().mv(x) + linear_);
  return at::cholesky_solve(right.unsqueeze(1), at::linalg_cholesky(hessian_)).squeeze(1);
}

Tensor Quadratic::hypergradient(const Tensor& x) const {
  const Tensor residual = outer_matrix_.mv(solution(x)) - outer_target_;
  const Tensor p = 2 * outer_matrix_.t().mv(residual);
  const Tensor solved = at::cholesky_solve(p.unsqueeze(1), at::linalg_cholesky(hessian_)).squeeze(1);
  return -cross_.mv(solved);
}

}  // namespace bilevel
