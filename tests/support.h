#pragma once
// What the tests share: relative errors, finite differences of whole objectives, dense derivatives and
// automatic differentiation through the unrolled graph, and problems around problems that count or spoil. The
// graph exists here and in `bilevel check` only, as a reference: one call hides T Hessian products and keeps
// T graphs.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/core/inner.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/problem.h"
#include "bilevel/core/random.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/hypergradients/registry.h"

namespace bilevel::test {

inline at::TensorOptions doubles() { return at::TensorOptions().dtype(at::kDouble); }
inline at::TensorOptions floats() { return at::TensorOptions().dtype(at::kFloat); }
inline Tensor vec(std::initializer_list<double> values) { return at::tensor(values, doubles()); }
inline double number(const Tensor& scalar) { return scalar.item<double>(); }
inline double length(const Tensor& t) { return t.detach().norm().item<double>(); }
inline Tensor random_vector(int64_t size, uint64_t seed) { return Random(seed).normal({size}, doubles()); }
inline Tensor random_like(const Tensor& t, uint64_t seed) {
  return Random(seed).normal(t.sizes(), t.options());
}

inline double relative_error(const Tensor& value, const Tensor& reference) {
  const double scale = reference.norm().item<double>();
  const double error = (value - reference).norm().item<double>();
  return scale > 0 ? error / scale : error;
}

// A row's name as part of a test's name.
inline std::string test_name(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline std::vector<std::string> estimator_names() {
  std::vector<std::string> names;
  for (const EstimatorRow& row : estimator_rows()) names.push_back(row.name);
  return names;
}
inline EstimatorSettings with_terms(int64_t terms) {
  EstimatorSettings settings;
  settings.terms = settings.truncate = terms;
  return settings;
}

// The gradient of a function of x by central differences, one entry at a time; error about step^2.
inline Tensor finite_differences(const std::function<double(const Tensor&)>& function, const Tensor& x,
                                 double step = 1e-5) {
  Tensor gradient = at::zeros_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    Tensor above = x.clone(), below = x.clone();
    above[i] += step;
    below[i] -= step;
    gradient[i] = (function(above) - function(below)) / (2 * step);
  }
  return gradient;
}

// The derivative of a function along u by seven points; error about step^6, so that 1e-9 and better can be
// asked.
inline double directional_difference(const std::function<double(const Tensor&)>& function, const Tensor& x,
                                     const Tensor& u, double step = 3e-3) {
  const auto pair = [&](double k) {
    return function(at::add(x, u, k * step)) - function(at::add(x, u, -k * step));
  };
  return (45 * pair(1) - 9 * pair(2) + pair(3)) / (60 * step);
}

// f after the T steps of the inner optimiser, as a number: what finite differences of the whole objective
// need.
inline double unrolled_objective(const Problem& problem, const Tensor& x, const Tensor& start,
                                 const InnerOptions& options, const InnerBatches& batches = {},
                                 const Batch& outer = {}) {
  Oracle oracle(problem);
  InnerLoop run;
  run.options = options;
  run.batches = batches;
  const Trajectory inner = run_inner(oracle, x, start, run);
  return oracle.outer_loss(inner.final.w, x, outer).item<double>();
}

// A trajectory that keeps every state.
inline Trajectory run_all_kept(Oracle& oracle, const Tensor& x, const Tensor& start,
                               const InnerOptions& options, const InnerBatches& batches = {}) {
  InnerLoop run;
  run.options = options;
  run.batches = batches;
  for (int64_t t = 0; t < options.steps; ++t) run.keep.push_back(t);
  return run_inner(oracle, x, start, run);
}

// A trajectory of no steps that ends at w: where an implicit estimator is to be looked at.
inline Trajectory standing_at(const Tensor& w, double rate = 0.1) {
  Trajectory inner;
  inner.options.steps = 0;
  inner.options.rate = rate;
  inner.optimizer = make_inner_optimizer(inner.options);
  inner.final = inner.optimizer->start(w);
  return inner;
}

// One estimate by the estimator's name, along a trajectory that keeps what it needs.
inline Hypergradient estimate_along(const std::string& name, const EstimatorSettings& settings,
                                    Oracle& oracle, const Tensor& x, const Trajectory& inner,
                                    const Batch& outer = {}) {
  return make_estimator(name, settings)->estimate(oracle, {.x = x, .inner = inner, .outer = outer});
}

// The derivative of f after the steps first .. T-1 of `inner`, taken again from the kept state before `first`
// on one graph. That state is a constant, unless the start is learned and `through_start` is asked for (then
// first = 0).
inline Tensor graph_hypergradient(const Problem& problem, const Tensor& x, const Trajectory& inner,
                                  int64_t first, bool through_start, const Batch& outer = {}) {
  using torch::autograd::grad;
  const at::AutoGradMode enable(true);
  const Oracle oracle(problem);
  const Tensor x_leaf = x.detach().requires_grad_(true);
  const Tensor learned_rate = oracle.inner_rate(x_leaf);
  InnerState state = first < inner.steps() ? inner.kept.at(first) : inner.final;
  state.w = through_start && inner.start_is_learned ? problem.inner_start(x_leaf)
                                                    : state.w.detach().requires_grad_(true);
  for (int64_t t = first; t < inner.steps(); ++t) {
    const Tensor loss = problem.inner_loss(state.w, x_leaf, inner.batches[static_cast<size_t>(t)]);
    const Tensor gradient = grad({loss}, {state.w}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    const double factor = inner.options.schedule.factor(state.step);
    const StepRate rate = learned_rate.defined() ? StepRate{0, learned_rate * factor}
                                                 : StepRate{inner.options.rate * factor, {}};
    state = inner.optimizer->step(state, gradient, rate);
  }
  const Tensor loss = problem.outer_loss(state.w, x_leaf, outer);
  const Tensor value = grad({loss}, {x_leaf}, {}, false, false, /*allow_unused=*/true)[0];
  return value.defined() ? value.detach() : at::zeros_like(x);
}

// All derivatives at one point as dense matrices, from the losses by plain automatic differentiation: no
// Oracle, no Linearization, no closed form.
struct Dense {
  Tensor gradient;   // grad_w g
  Tensor hessian;    // n x n
  Tensor cross;      // m x n: C
  Tensor p, direct;  // df/dw, df/dx
};
inline Dense dense_at(const Problem& problem, const Tensor& w, const Tensor& x, const Batch& inner = {},
                      const Batch& outer = {}) {
  using torch::autograd::grad;
  const at::AutoGradMode enable(true);
  const Tensor w_leaf = w.detach().requires_grad_(true);
  const Tensor x_leaf = x.detach().requires_grad_(true);
  const auto or_zero = [](const Tensor& t, const Tensor& like) {
    return t.defined() ? t.detach() : at::zeros_like(like.detach());
  };
  const Tensor g = grad({problem.inner_loss(w_leaf, x_leaf, inner)}, {w_leaf}, {}, true, true)[0];
  std::vector<Tensor> hessian_rows, cross_columns;
  for (int64_t i = 0; i < w.numel(); ++i) {
    const auto row = grad({g[i]}, {w_leaf, x_leaf}, {}, true, false, /*allow_unused=*/true);
    hessian_rows.push_back(or_zero(row[0], w_leaf));
    cross_columns.push_back(or_zero(row[1], x_leaf));
  }
  const auto f = grad({problem.outer_loss(w_leaf, x_leaf, outer)}, {w_leaf, x_leaf}, {}, false, false, true);
  return {g.detach(), at::stack(hessian_rows), at::stack(cross_columns, 1), or_zero(f[0], w_leaf),
          or_zero(f[1], x_leaf)};
}
inline Tensor solve(const Tensor& matrix, const Tensor& right) {
  return at::linalg_solve(matrix, right.unsqueeze(1)).squeeze(1);
}
// rate * sum_{k=0..terms} (I - rate A)^k p, by the matrix.
inline Tensor dense_neumann(const Tensor& matrix, const Tensor& p, double rate, int64_t terms) {
  Tensor term = p, sum = p;
  for (int64_t k = 0; k < terms; ++k) {
    term = term - rate * matrix.mv(term);
    sum = sum + term;
  }
  return rate * sum;
}

// A problem that hands everything on to another, the base of doubles. Derivatives of f and grad_x g are those
// of its own losses, so that a double may change a loss alone.
class ForwardingProblem : public Problem {
 public:
  explicit ForwardingProblem(const Problem& base) : base_(base) {}
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& b) const override {
    return base_.inner_loss(w, x, b);
  }
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& b) const override {
    return base_.outer_loss(w, x, b);
  }
  Tensor initial_inner(uint64_t seed) const override { return base_.initial_inner(seed); }
  Tensor initial_outer(uint64_t seed) const override { return base_.initial_outer(seed); }
  int64_t inner_samples() const override { return base_.inner_samples(); }
  int64_t outer_samples() const override { return base_.outer_samples(); }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x, const Batch& b) const override {
    return base_.linearize(w, x, b);
  }
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& b) const override {
    return base_.inner_gradient(w, x, b);
  }
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& b) const override {
    return base_.inner_parts(w, x, b);
  }
  Tensor inner_start(const Tensor& x) const override { return base_.inner_start(x); }
  Tensor inner_rate(const Tensor& x) const override { return base_.inner_rate(x); }
  const Layout* inner_layout() const override { return base_.inner_layout(); }
  bool inner_loss_uses_outer() const override { return base_.inner_loss_uses_outer(); }

 protected:
  const Problem& base_;
};

// Counts its own calls, knowing nothing of Oracle. Each list holds the batch of every call.
class CountingProblem : public ForwardingProblem {
 public:
  using ForwardingProblem::ForwardingProblem;
  struct Calls {
    std::vector<Batch> inner_gradient, outer_gradient, hessian, cross;
    int64_t samples = 0;  // examples read by all of them
  };
  const Calls& calls() const { return *calls_; }
  void forget() { *calls_ = {}; }

  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& b) const override {
    note(calls_->inner_gradient, b, inner_samples());
    return base_.inner_gradient_in_outer(w, x, b);
  }
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& b) const override {
    note(calls_->outer_gradient, b, outer_samples());
    return base_.outer_gradients(w, x, b);
  }
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& b) const override {
    note(calls_->inner_gradient, b, inner_samples());
    return base_.inner_gradient(w, x, b);
  }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x, const Batch& b) const override {
    return std::make_unique<Counted>(*this, base_.linearize(w, x, b), b);
  }

 private:
  class Counted : public Linearization {
   public:
    Counted(const CountingProblem& owner, std::unique_ptr<Linearization> base, Batch batch)
        : owner_(owner), base_(std::move(base)), batch_(std::move(batch)) {}
    Tensor gradient() override { return noted(owner_.calls_->inner_gradient), base_->gradient(); }
    Tensor hessian(const Tensor& v) override { return noted(owner_.calls_->hessian), base_->hessian(v); }
    Tensor cross(const Tensor& v) override { return noted(owner_.calls_->cross), base_->cross(v); }
    Tensor cross_transposed(const Tensor& u) override {
      return noted(owner_.calls_->cross), base_->cross_transposed(u);
    }
    Tensor gauss_newton(const Tensor& v) override {
      return noted(owner_.calls_->hessian), base_->gauss_newton(v);
    }

   private:
    void noted(std::vector<Batch>& list) { owner_.note(list, batch_, owner_.inner_samples()); }
    const CountingProblem& owner_;
    std::unique_ptr<Linearization> base_;
    Batch batch_;
  };

  void note(std::vector<Batch>& list, const Batch& batch, int64_t population) const {
    list.push_back(batch);
    calls_->samples += batch.index.defined() ? batch.index.numel() : population;
  }
  std::unique_ptr<Calls> calls_ = std::make_unique<Calls>();
};

}  // namespace bilevel::test
