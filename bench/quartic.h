#pragma once
// A problem that is cheap at a million inner variables, yet whose Hessian changes along the trajectory, so
// that reverse mode needs every iterate. Variable i belongs to group j(i), one outer variable per group:
//
//     g(w, x) = sum_i exp(x_j(i)) (w_i - sin i)^2 / 2 + w_i^4 / 4,    f(w) = sum_i (w_i - cos i)^2 / (2 n)
//
// Groups are blocks of neighbours; w starts at zero, x_j at -j / m. The data are formulas, so that
// bench/peers/unrolled.py has the same ones.

#include <ATen/ATen.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "bilevel/core/problem.h"

namespace bench {

using bilevel::Batch;
using bilevel::Tensor;

class QuarticLinearization : public bilevel::Linearization {
 public:
  // All are groups x members, but for the scale, which is groups x 1.
  QuarticLinearization(Tensor w, Tensor target, Tensor scale)
      : w_(std::move(w)), target_(std::move(target)), scale_(std::move(scale)) {}

  Tensor gradient() override { return at::mul(w_, w_).mul_(w_).addcmul_(w_ - target_, scale_).reshape({-1}); }
  Tensor hessian(const Tensor& v) override {
    return at::mul(w_, w_).mul_(3).add_(scale_).mul_(v.view_as(w_)).reshape({-1});
  }
  Tensor cross(const Tensor& v) override {
    return at::sub(w_, target_).mul_(v.view_as(w_)).sum(1) * scale_.reshape({-1});
  }
  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) override {
    const Tensor small = cross(v);  // first: its temporary is gone before the Hessian product needs one
    return {hessian(v), small};
  }
  Tensor cross_transposed(const Tensor& u) override {
    return at::sub(w_, target_).mul_(scale_ * u.reshape({-1, 1})).reshape({-1});
  }

 private:
  Tensor w_, target_, scale_;
};

class Quartic : public bilevel::Problem {
 public:
  // With `closed_form` false the derivatives come from automatic differentiation of the two losses.
  Quartic(int64_t size, int64_t groups, at::ScalarType dtype, bool closed_form)
      : groups_(groups), closed_form_(closed_form) {
    if (size % groups != 0) throw std::invalid_argument("the size must be a multiple of the outer variables");
    const Tensor i = at::arange(size, at::kDouble);
    inner_target_ = i.sin().to(dtype).view({groups, -1});
    outer_target_ = i.cos().to(dtype);
  }

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& /*batch*/) const override {
    const Tensor grouped = w.view_as(inner_target_);
    return (scale(x) * (grouped - inner_target_).pow(2)).sum() / 2 + w.pow(4).sum() / 4;
  }
  Tensor outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& /*batch*/) const override {
    return (w - outer_target_).pow(2).sum() / (2 * w.numel());
  }
  Tensor initial_inner(uint64_t /*seed*/) const override { return at::zeros_like(outer_target_); }
  Tensor initial_outer(uint64_t /*seed*/) const override {
    return at::arange(groups_, outer_target_.options()) / -static_cast<double>(groups_);
  }

  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return closed_form_ ? closed(w, x).gradient() : Problem::inner_gradient(w, x, batch);
  }
  std::unique_ptr<bilevel::Linearization> linearize(const Tensor& w, const Tensor& x,
                                                    const Batch& batch) const override {
    if (!closed_form_) return Problem::linearize(w, x, batch);
    return std::make_unique<QuarticLinearization>(closed(w, x));
  }

 private:
  Tensor scale(const Tensor& x) const { return x.exp().reshape({groups_, 1}); }
  QuarticLinearization closed(const Tensor& w, const Tensor& x) const {
    return {w.view_as(inner_target_), inner_target_, scale(x)};
  }

  int64_t groups_;
  bool closed_form_;
  Tensor inner_target_, outer_target_;
};

}  // namespace bench
