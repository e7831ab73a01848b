#include "bilevel/algorithms/first_rate.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "bilevel/core/lbfgs.h"
#include "bilevel/hypergradients/registry.h"

namespace bilevel {
namespace {

constexpr int64_t first_rate_cg_steps = 10;
constexpr int64_t first_rate_gradients = 200;  // a scale, not a solution, is wanted

}  // namespace

double first_outer_rate(Oracle& oracle, const Tensor& x, Trajectory trained, double longest) {
  EstimatorSettings settings;
  settings.terms = first_rate_cg_steps;
  const Tensor value = make_estimator("cg", settings)->estimate(oracle, {.x = x, .inner = trained}).value;
  const double largest = value.abs().max().item<double>();
  return largest > 0 && std::isfinite(longest / largest) ? longest / largest : 0;
}

double first_outer_rate(Oracle& oracle, const Tensor& x, const Tensor& w, double inner_rate, double longest) {
  LbfgsOptions lbfgs;
  lbfgs.relative_tolerance = 1e-3;
  lbfgs.most_gradients = first_rate_gradients;
  lbfgs.first_step = inner_rate;
  const auto gradient = [&](const Tensor& at) { return oracle.inner_gradient(at, x, Batch{}); };
  Trajectory trained;
  trained.optimizer = make_inner_optimizer({});
  trained.final = trained.optimizer->start(minimize(gradient, w, lbfgs).w);
  return first_outer_rate(oracle, x, std::move(trained), longest);
}

}  // namespace bilevel
