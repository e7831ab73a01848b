#include "bilevel/algorithms/stable.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/algorithms/recursive_momentum.h"
#include "bilevel/algorithms/soba.h"
#include "bilevel/core/require.h"

namespace bilevel {

void StableOptions::validate() const {
  require_positive("stable", "inner_rate", inner_rate);
  require_averaging("stable", averaging);
  require_nonnegative("stable", "strong_convexity", strong_convexity);
  curvature.validate();
}

const Fields<StableOptions>& StableOptions::fields() {
  static const Fields<StableOptions> table = [] {
    using O = StableOptions;
    Fields<O> f;
    add_inner_rate(
        f, [](O & o) -> auto& { return o.inner_rate; });
    f.add(
         "averaging", [](O & o) -> auto& { return o.averaging; },
         "weight of the newest sample in the average")
        .in(above(0, 1));
    f.add(
         "strong_convexity", [](O & o) -> auto& { return o.strong_convexity; },
         "smallest eigenvalue that H is raised to; 0 = a thousandth of the largest")
        .in(at_least(0));
    f.include(
        [](O & o) -> auto& { return o.curvature; }, matrix_fields());
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Stable::Stable(const StableOptions& options) : Algorithm(options.outer), options_(options) {
  options_.validate();
}

void Stable::begin(AlgorithmState& state) const {
  const int64_t n = state.inner.w.numel();
  if (n > StableOptions::most_variables) {
    throw std::invalid_argument(
        fmt::format("stable: w has {} entries, at most {} are possible: it keeps an n x n matrix and takes 2 "
                    "n products in each iteration; choose soba or fsla",
                    n, StableOptions::most_variables));
  }
}

std::pair<Tensor, Tensor> Stable::matrices(Oracle& oracle, const Tensor& w, const Tensor& x,
                                           const Batch& batch) const {
  const auto at_point = oracle.linearize(w, x, batch);
  std::vector<Tensor> hessian, cross;
  const Tensor identity = at::eye(w.numel(), w.options());
  for (int64_t i = 0; i < w.numel(); ++i) {
    auto [column, cross_column] = curvature_and_cross(*at_point, identity[i], options_.curvature);
    hessian.push_back(std::move(column));
    cross.push_back(std::move(cross_column));
  }
  return {at::stack(hessian, 1), at::stack(cross, 1)};
}

Tensor Stable::Projected::matrix() const { return (vectors * values).matmul(vectors.t()); }

Tensor Stable::Projected::solve(const Tensor& b) const { return vectors.mv(vectors.t().mv(b) / values); }

Stable::Projected Stable::project(const Tensor& hessian) const {
  const auto [values, vectors] = at::linalg_eigh((hessian + hessian.t()) / 2);
  const double least =
      options_.strong_convexity > 0 ? options_.strong_convexity : 1e-3 * values.abs().max().item<double>();
  return {values.clamp_min(least), vectors};
}

IterationSummary Stable::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const Tensor x = state.x, w = state.inner.w;
  const Batch sample = streams.inner("matrices");
  auto [hessian, cross] = matrices(oracle, w, x, sample);
  if (state.iteration > 0) {
    const auto [old_hessian, old_cross] =
        matrices(oracle, state.memory.at("previous/w"), state.memory.at("previous/x"), sample);
    hessian = recursive_momentum(hessian, old_hessian, state.memory.at("hessian"), options_.averaging);
    cross = recursive_momentum(cross, old_cross, state.memory.at("cross"), options_.averaging);
  }
  const OuterGradients f = oracle.outer_gradients(w, x, streams.outer("loss"));
  const Tensor gradient = oracle.inner_gradient(w, x, streams.inner("steps"));
  const Projected projected_hessian = project(hessian);
  state.v = projected_hessian.solve(f.w);
  const Tensor direction = f.x - cross.mv(state.v);
  state.x = projected(oracle.problem(), outer_step(oracle, x, direction, state.outer));
  // w*(x) moves by -H^-1 C' (x+ - x) to first order.
  state.inner.w =
      descend(w, gradient, options_.inner_rate) - projected_hessian.solve(cross.t().mv(state.x - x));
  ++state.inner.step;
  state.memory["previous/x"] = x;
  state.memory["previous/w"] = w;
  state.memory["hessian"] = projected_hessian.matrix();
  state.memory["cross"] = cross;
  return {.direction = direction, .outer_loss = f.loss, .status = Status::ok, .direct = f.x};
}

}  // namespace bilevel
