#include "bilevel/problems/ridge.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bilevel/core/enclosure.h"
#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/stable_outer.h"

namespace bilevel {
namespace {

// `rows` undefined = the full set, whose Gram matrix is at hand; otherwise a minibatch's rows.
class RidgeLinearization : public Linearization {
 public:
  RidgeLinearization(Tensor gradient, Tensor w, Tensor penalty, Tensor gram, Tensor rows)
      : gradient_(std::move(gradient)),
        penalty_(std::move(penalty)),
        diagonal_cross_(penalty_ * w),
        gram_(std::move(gram)),
        rows_(std::move(rows)) {}

  Tensor gradient() override { return gradient_; }
  Tensor hessian(const Tensor& v) override {
    const Tensor data = rows_.defined() ? rows_.t().mv(rows_.mv(v)) / rows_.size(0) : gram_.mv(v);
    return data + penalty_ * v;
  }
  // The cross derivative is diagonal, so both products are the same.
  Tensor cross(const Tensor& v) override { return diagonal_cross_ * v; }
  Tensor cross_transposed(const Tensor& u) override { return diagonal_cross_ * u; }

 private:
  Tensor gradient_, penalty_, diagonal_cross_, gram_, rows_;
};

Tensor mean_square(const Tensor& residual) { return residual.dot(residual) / residual.size(0); }

}  // namespace

void RidgeOptions::validate() const {
  for (const auto& [name, value] : {std::pair{"features", features}, std::pair{"samples", samples},
                                    std::pair{"valid_samples", valid_samples}}) {
    require_at_least(name, value, 1);
  }
  if (!std::isfinite(initial_log)) {
    throw std::invalid_argument(fmt::format("initial_log = {}: must be finite", initial_log));
  }
  require_nonnegative("noise", noise);
}

Ridge::Ridge(const RidgeOptions& options) : options_(options) {
  options_.validate();
  const auto cpu = at::TensorOptions().dtype(at::kDouble);
  auto normal = [&](const char* name, at::IntArrayRef sizes) {
    return Random(named_seed(options_.seed, name)).normal(sizes, cpu);
  };
  // Half of the true weights are zero: their regularisers want to grow, the others to shrink.
  const Tensor kept = at::arange(options_.features, cpu).remainder(2);
  const Tensor truth = normal("weights", {options_.features}) * kept;
  const Tensor matrix = normal("A", {options_.samples, options_.features});
  const Tensor valid_matrix = normal("A_v", {options_.valid_samples, options_.features});
  const Tensor target = matrix.mv(truth) + options_.noise * normal("noise", {options_.samples});
  const Tensor valid_target =
      valid_matrix.mv(truth) + options_.noise * normal("noise_v", {options_.valid_samples});
  gram_ = (matrix.t().mm(matrix) / options_.samples).to(options_.tensors);
  moment_ = (matrix.t().mv(target) / options_.samples).to(options_.tensors);
  matrix_ = matrix.to(options_.tensors);
  target_ = target.to(options_.tensors);
  valid_matrix_ = valid_matrix.to(options_.tensors);
  valid_target_ = valid_target.to(options_.tensors);
  const double of_data = at::linalg_eigvalsh(matrix.t().mm(matrix) / options_.samples).max().item<double>();
  largest_outer_ = largest_stable_log(options_.stable_rate, of_data, 1, options_.initial_log);
}

void Ridge::project_outer_(Tensor& x) const {
  if (std::isfinite(largest_outer_)) x = x.clamp_max(largest_outer_);
}

Tensor Ridge::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Tensor residual = batch_rows(matrix_, batch).mv(w) - batch_rows(target_, batch);
  return 0.5 * mean_square(residual) + 0.5 * (x.exp() * w * w).sum();
}

Tensor Ridge::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  return 0.5 * mean_square(batch_rows(valid_matrix_, batch).mv(w) - batch_rows(valid_target_, batch));
}

Tensor Ridge::initial_inner(uint64_t /*seed*/) const {
  return at::zeros({options_.features}, options_.tensors);
}

Tensor Ridge::initial_outer(uint64_t /*seed*/) const {
  return at::full({options_.features}, options_.initial_log, options_.tensors);
}

Tensor Ridge::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Tensor penalty = x.exp() * w;
  if (batch.is_full()) return gram_.mv(w) - moment_ + penalty;
  const Tensor rows = batch_rows(matrix_, batch);
  return rows.t().mv(rows.mv(w) - batch_rows(target_, batch)) / rows.size(0) + penalty;
}

std::unique_ptr<Linearization> Ridge::linearize(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return std::make_unique<RidgeLinearization>(inner_gradient(w, x, batch), w, x.exp(), gram_,
                                              batch.is_full() ? Tensor() : batch_rows(matrix_, batch));
}

// C = diag(exp(x) w) has no bound over all w, but changes by at most max exp(x) a unit of w.
std::optional<LossConstants> Ridge::loss_constants(const Tensor& x) const {
  const Tensor penalty = x.detach().to(at::kDouble).exp();
  const Tensor hessian = gram_.to(at::kDouble) + at::diag(penalty);
  // exp and the sum are rounded: that moves every eigenvalue by no more than this.
  const double rounding = 8 * std::numeric_limits<double>::epsilon() * norm_above(hessian.diagonal());
  return LossConstants{.strong_convexity = smallest_eigenvalue_below(hessian) - rounding,
                       .smoothness = largest_eigenvalue_above(hessian) + rounding,
                       .cross_norm = std::numeric_limits<double>::infinity(),
                       .outer_w = squared_norm_above(valid_matrix_) /
                                  static_cast<double>(options_.valid_samples) * (1 + 1e-15),
                       .cross = penalty.max().item<double>() * (1 + 1e-15)};
}

// g is that of A'A / N and A'b / N as they are stored, each rounded once, and of the first one's symmetric
// part.
std::optional<EvaluationErrors> Ridge::evaluation_errors(const Tensor& w, const Tensor& x) const {
  const double epsilon = machine_epsilon(w);
  const int64_t n = options_.features;
  const double asymmetry = 0.5 * norm_above(gram_ - gram_.t());
  const Tensor penalty = x.detach().to(at::kDouble).exp();
  const Tensor diagonal_cross = penalty * w.detach().to(at::kDouble).abs();
  EvaluationErrors errors;
  // exp is right to 4 units in the last place, and what it multiplies is rounded with the rest.
  errors.gradient = accumulated(n + 3, epsilon) * norm_above(absolute_product(gram_, w) +
                                                             moment_.to(at::kDouble).abs() + diagonal_cross) +
                    8 * epsilon * norm_above(diagonal_cross) + asymmetry * norm_above(w);
  errors.hessian = accumulated(n + 1, epsilon) * norm_above(gram_) +
                   16 * epsilon * penalty.max().item<double>() + asymmetry;
  errors.cross_norm = diagonal_cross.max().item<double>() * (1 + 1e-14);
  errors.cross = 16 * epsilon * errors.cross_norm;
  errors.outer_w = squares_gradient_error(valid_matrix_, valid_target_, w,
                                          1 / static_cast<double>(options_.valid_samples));
  return errors;
}

Tensor Ridge::solve(const Tensor& x, const Tensor& right) const {
  const Tensor hessian = gram_ + at::diag(x.exp());
  return at::cholesky_solve(right.unsqueeze(1), at::linalg_cholesky(hessian)).squeeze(1);
}

Tensor Ridge::solution(const Tensor& x) const { return solve(x, moment_); }

Tensor Ridge::hypergradient(const Tensor& x) const {
  const Tensor w = solution(x);
  const Tensor p = valid_matrix_.t().mv(valid_matrix_.mv(w) - valid_target_) / options_.valid_samples;
  return -x.exp() * w * solve(x, p);
}

}  // namespace bilevel
