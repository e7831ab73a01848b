#include "bilevel/hypergradients/implicit.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bilevel/core/central_difference.h"
#include "bilevel/core/require.h"
#include "bilevel/fields/fields.h"

namespace bilevel {

void CurvatureOptions::validate() const {
  if (kind != "hessian" && kind != "gauss-newton") {
    refuse_unknown("curvature", kind, {"hessian", "gauss-newton"});
  }
  require_nonnegative("damping", damping);
  if (!(difference_step > 0) || !std::isfinite(difference_step)) {
    throw std::invalid_argument(
        fmt::format("difference_step = {}: must be finite and above 0", difference_step));
  }
  if (difference_hessian && kind == "gauss-newton") {
    throw std::invalid_argument(
        "difference_hessian: a Gauss-Newton product is not a difference of gradients; use curvature hessian");
  }
}

const Fields<CurvatureOptions>& CurvatureOptions::fields() {
  static const Fields<CurvatureOptions> table = [] {
    using O = CurvatureOptions;
    Fields<O> f;
    f.add(
         "curvature", [](O & o) -> auto& { return o.kind; }, "curvature matrix: hessian or gauss-newton")
        .one_of({"hessian", "gauss-newton"});
    f.add(
         "damping", [](O & o) -> auto& { return o.damping; }, "damping rho in H + rho I")
        .in(at_least(0));
    f.add(
        "difference_hessian", [](O & o) -> auto& { return o.difference_hessian; },
        "use central differences in place of Hessian products");
    f.add(
        "difference_cross", [](O & o) -> auto& { return o.difference_cross; },
        "use central differences in place of the cross product, as DARTS and iDARTS do");
    f.add(
         "difference_step", [](O & o) -> auto& { return o.difference_step; },
         "distance that w is moved for a difference")
        .in(above(0));
    return f;
  }();
  return table;
}

CurvatureProducts::CurvatureProducts(Oracle& oracle, const HypergradientRequest& request,
                                     CurvatureOptions options)
    : oracle_(oracle), request_(request), options_(std::move(options)) {
  options_.validate();
}

Linearization& CurvatureProducts::at_batch(const Batch& batch) {
  const bool same =
      linearization_ && linearized_batch_.seed == batch.seed && linearized_batch_.index.is_same(batch.index);
  if (!same) {
    linearization_ = oracle_.linearize(request_.inner.final.w, request_.x, batch);
    linearized_batch_ = batch;
  }
  return *linearization_;
}

const Batch& CurvatureProducts::hessian_batch(int64_t k) const {
  static const Batch full;
  const auto& batches = request_.hessian;
  if (batches.size() > 1 && k >= static_cast<int64_t>(batches.size())) {
    throw std::invalid_argument(fmt::format(
        "Hessian product {} has no batch: {} were given; give one for each product, or one for all", k + 1,
        batches.size()));
  }
  return batches.empty() ? full : batches.size() == 1 ? batches[0] : batches[static_cast<size_t>(k)];
}

Tensor CurvatureProducts::operator()(const Tensor& v, int64_t k) {
  const Batch& batch = hessian_batch(k);
  Tensor product;
  if (options_.difference_hessian) {
    product =
        central_difference([&](const Tensor& w) { return oracle_.inner_gradient(w, request_.x, batch); },
                           request_.inner.final.w, v, options_.difference_step, &oracle_.finite());
    if (!product.defined()) product = at::zeros_like(v);
  } else if (options_.kind == "gauss-newton") {
    product = at_batch(batch).gauss_newton(v);
  } else {
    product = at_batch(batch).hessian(v);
  }
  return options_.damping > 0 ? at::add(product, v, options_.damping) : product;
}

MatrixProduct CurvatureProducts::matrix() {
  if (request_.hessian.size() > 1) {
    throw std::invalid_argument(fmt::format(
        "this solver needs one fixed matrix, but {} Hessian batches were given: give one, or use neumann "
        "or fixed-point",
        request_.hessian.size()));
  }
  return [this](const Tensor& v) { return (*this)(v, 0); };
}

Tensor CurvatureProducts::cross(const Tensor& v) {
  if (!oracle_.problem().inner_loss_uses_outer()) return {};
  if (!options_.difference_cross) return at_batch(request_.cross).cross(v);
  const auto gradient = [&](const Tensor& w) {
    return oracle_.inner_gradient_in_outer(w, request_.x, request_.cross);
  };
  return central_difference(gradient, request_.inner.final.w, v, options_.difference_step, &oracle_.finite());
}

namespace {

// A batch that no product read was drawn for nothing, and its owner believes in a series that is longer.
void check_batches_used(const HypergradientRequest& request, const LinearResult& linear) {
  const auto given = static_cast<int64_t>(request.hessian.size());
  const bool ended_early = linear.status == Status::converged || linear.status == Status::not_finite;
  if (given > 1 && linear.products < given && !ended_early) {
    throw std::invalid_argument(
        fmt::format("{} Hessian batches were given, but {} Hessian products were taken: give one for each "
                    "product, or one for all",
                    given, linear.products));
  }
}

}  // namespace

Hypergradient implicit_hypergradient(Oracle& oracle, const HypergradientRequest& request,
                                     const CurvatureOptions& curvature, const ImplicitSolve& solve) {
  const auto outer = oracle.outer_gradients(request.inner.final.w, request.x, request.outer);
  CurvatureProducts products(oracle, request, curvature);
  LinearResult linear = solve(products, outer.w);
  check_batches_used(request, linear);
  const Tensor cross = products.cross(linear.solution);

  Hypergradient result = estimate_from(outer);
  result.value = cross.defined() ? outer.x - cross : outer.x;
  result.status = linear.status;
  result.solution = linear.solution;
  result.iterations = linear.iterations;
  result.relative_residual = linear.relative_residual;
  result.bytes_kept = linear.vectors_kept * static_cast<int64_t>(outer.w.nbytes());
  return result;
}

double series_theory(const TheoryInputs& in, double rate, int64_t summands) {
  if (in.mu <= 0 || rate * in.smoothness > 1 + 1e-9) return std::numeric_limits<double>::quiet_NaN();
  return in.cross_norm * in.p_norm / in.mu * std::pow(1 - rate * in.mu, static_cast<double>(summands));
}

}  // namespace bilevel
