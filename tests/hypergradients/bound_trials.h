#pragma once
// One random problem, one random estimate of its hypergradient, the bound that the estimate carries and its
// true error in extended precision: what tests/hypergradients/error_bound_test.cpp does a few thousand times
// and bench/error_bounds.cpp as often as one likes. A trial is decided by its seed.

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/core/enclosure.h"
#include "bilevel/core/random.h"
#include "bilevel/core/rounding.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/problems/counterexample.h"
#include "bilevel/problems/hyper_cleaning.h"
#include "bilevel/problems/quadratic.h"
#include "bilevel/problems/regularized_softmax.h"
#include "bilevel/problems/ridge.h"
#include "bilevel/problems/softmax_constants.h"
#include "bilevel/problems/softmax_regression.h"
#include "bilevel/problems/toy.h"
#include "bilevel/problems/weighted_softmax.h"
#include "tests/hypergradients/precise.h"

namespace bilevel::test {

// g = w'Hw / 2 + x'Cw + b'w,   f = (w-a)'O(w-a) / 2 + x'Dw + |x|^2 / 2, all of them random and known.
class RandomQuadratic : public Problem, public BoundedEvaluation {
 public:
  RandomQuadratic(int64_t n, int64_t m, double condition, uint64_t seed,
                  const at::TensorOptions& tensors = at::TensorOptions().dtype(at::kDouble)) {
    Random random(seed);
    const auto doubles = at::TensorOptions().dtype(at::kDouble);
    const at::Tensor basis = std::get<0>(at::linalg_qr(random.normal({n, n}, doubles)));
    at::Tensor eigenvalues = (random.uniform({n}, doubles) * std::log(condition)).exp();
    eigenvalues[0] = 1;
    eigenvalues[n - 1] = condition;
    const at::Tensor h = basis.mm(at::diag(eigenvalues)).mm(basis.t());
    hessian = (0.5 * (h + h.t())).to(tensors);
    cross = random.normal({m, n}, doubles).to(tensors);
    outer_cross = (0.1 * random.normal({m, n}, doubles)).to(tensors);
    linear = random.normal({n}, doubles).to(tensors);
    target = random.normal({n}, doubles).to(tensors);
    const at::Tensor root = random.normal({n, n}, doubles);
    outer = (root.t().mm(root) / n).to(tensors);
    start = random.normal({n}, doubles).to(tensors);
    outer_start = random.normal({m}, doubles).to(tensors);
  }

  at::Tensor inner_loss(const at::Tensor& w, const at::Tensor& x, const Batch&) const override {
    return 0.5 * w.dot(hessian.mv(w)) + x.dot(cross.mv(w)) + linear.dot(w);
  }
  at::Tensor outer_loss(const at::Tensor& w, const at::Tensor& x, const Batch&) const override {
    const at::Tensor gap = w - target;
    return 0.5 * gap.dot(outer.mv(gap)) + x.dot(outer_cross.mv(w)) + 0.5 * x.dot(x);
  }
  at::Tensor initial_inner(uint64_t) const override { return start; }
  at::Tensor initial_outer(uint64_t) const override { return outer_start; }
  std::optional<LossConstants> loss_constants(const at::Tensor&) const override {
    return LossConstants{.strong_convexity = smallest_eigenvalue_below(hessian),
                         .smoothness = largest_eigenvalue_above(hessian),
                         .cross_norm = std::sqrt(squared_norm_above(cross)) * (1 + 1e-15),
                         .outer_x = std::sqrt(squared_norm_above(outer_cross)) * (1 + 1e-15),
                         .outer_w = largest_eigenvalue_above(outer)};
  }
  std::optional<EvaluationErrors> evaluation_errors(const at::Tensor& w, const at::Tensor& x) const override {
    const double epsilon = machine_epsilon(w);
    const int64_t n = w.numel(), m = x.numel(), most = std::max(n, m);
    const auto absolute = [](const at::Tensor& t) { return t.to(at::kDouble).abs(); };
    EvaluationErrors errors;
    errors.gradient =
        accumulated(most + 3, epsilon) *
        norm_above(absolute_product(hessian, w) + absolute_product(cross.t(), x) + absolute(linear));
    errors.hessian = accumulated(n, epsilon) * norm_above(hessian);
    errors.cross = accumulated(most, epsilon) * norm_above(cross);
    errors.outer_w =
        accumulated(most + 4, epsilon) * norm_above(absolute_product(outer, absolute(w) + absolute(target)) +
                                                    absolute_product(outer_cross.t(), x)) +
        0.5 * norm_above(outer - outer.t()) * (norm_above(w) + norm_above(target));
    errors.outer_x = accumulated(n + 2, epsilon) * norm_above(absolute_product(outer_cross, w) + absolute(x));
    return errors;
  }

  // By hand: the test needs tens of thousands of gradients.
  at::Tensor inner_gradient(const at::Tensor& w, const at::Tensor& x, const Batch&) const override {
    return hessian.mv(w) + cross.t().mv(x) + linear;
  }
  OuterGradients outer_gradients(const at::Tensor& w, const at::Tensor& x,
                                 const Batch& batch) const override {
    return {outer_loss(w, x, batch), outer.mv(w - target) + outer_cross.t().mv(x), outer_cross.mv(w) + x};
  }
  std::unique_ptr<Linearization> linearize(const at::Tensor& w, const at::Tensor& x,
                                           const Batch& b) const override {
    struct Constant : Linearization {
      at::Tensor g, h, c;
      at::Tensor gradient() override { return g; }
      at::Tensor hessian(const at::Tensor& v) override { return h.mv(v); }
      at::Tensor cross(const at::Tensor& v) override { return c.mv(v); }
      at::Tensor cross_transposed(const at::Tensor& u) override { return c.t().mv(u); }
    };
    auto result = std::make_unique<Constant>();
    result->g = inner_gradient(w, x, b);
    result->h = hessian;
    result->c = cross;
    return result;
  }

  at::Tensor hessian, cross, outer_cross, linear, target, outer, start, outer_start;
};

inline const std::vector<std::string>& trial_kinds() {
  static const std::vector<std::string> names = {"random quadratic",
                                                 "quadratic",
                                                 "ridge",
                                                 "toy",
                                                 "counterexample",
                                                 "softmax regression",
                                                 "regularized softmax",
                                                 "hyper-cleaning",
                                                 "weighted softmax"};
  return names;
}

struct Trial {
  size_t kind = 0;
  bool single = false;  // float, else double
  bool solved = false;  // the inner loop starts at the solution
  std::string method;
  double error = 0;  // |estimate - exact|
  ErrorBound bound;
  std::string no_bound;
};

class TrialMaker {
 public:
  explicit TrialMaker(uint64_t seed) : random_(named_seed(seed, "bound trials")) {}

  Trial run() {
    Trial trial;
    trial.kind = static_cast<size_t>(random_.below(static_cast<int64_t>(trial_kinds().size())));
    trial.single = random_.below(2) == 0;
    trial.solved = random_.below(4) == 0;
    tensors_ = at::TensorOptions().dtype(trial.single ? at::kFloat : at::kDouble);
    // At most a fifth of the regulariser's own size to a hundred times the curvature's.
    decay_ = random_.below(5) == 0 ? std::pow(10.0, -3 + 4 * random_.uniform()) : 0;
    make(trial.kind);
    const Problem* problem = problem_.get();
    std::unique_ptr<WithWeightDecay> decayed;
    if (decay_ > 0) {
      decayed = std::make_unique<WithWeightDecay>(*problem_, decay_);
      problem = decayed.get();
    }
    Oracle oracle(*problem);
    const bool slow = trial.kind == 5 || trial.kind == 7;  // by automatic differentiation
    InnerOptions inner = draw_inner(problem->loss_constants(x_)->smoothness, slow);
    const auto estimator = draw_estimator(trial, inner);
    const at::Tensor start = trial.solved ? rounded(answer_.w) : start_;
    const Hypergradient h = hypergradient_at(oracle, x_, start, inner, *estimator, true).hypergradient;
    trial.bound = h.bound;
    trial.no_bound = h.no_bound;
    trial.error = static_cast<double>(precise_length(sum(precise(h.value), answer_.hypergradient, -1)));
    return trial;
  }

 private:
  double log_uniform(double from, double to) { return from * std::pow(to / from, random_.uniform()); }
  at::Tensor rounded(const Vector& v) const {
    std::vector<double> doubles(v.begin(), v.end());
    return at::tensor(doubles, at::TensorOptions().dtype(at::kDouble)).to(tensors_);
  }
  at::Tensor normal(at::IntArrayRef sizes, double scale) {
    return random_.normal(sizes, at::TensorOptions().dtype(at::kDouble)).mul_(scale).to(tensors_);
  }

  InnerOptions draw_inner(double smoothness, bool slow) {
    InnerOptions inner;
    inner.steps = random_.below(5) == 0 ? (slow ? 100 : 300) : random_.below(slow ? 25 : 80);
    inner.rate = log_uniform(0.1, 1.5) / smoothness;
    if (random_.below(5) == 0) inner.optimizer = "heavy-ball";
    if (random_.below(10) == 0) inner.optimizer = "adam";
    if (inner.optimizer == "heavy-ball") inner.momentum = 0.5;
    return inner;
  }

  std::unique_ptr<HypergradientEstimator> draw_estimator(Trial& trial, InnerOptions& inner) {
    const auto& rows = estimator_rows();
    trial.method = rows[static_cast<size_t>(random_.below(static_cast<int64_t>(rows.size())))].name;
    EstimatorSettings settings;
    settings.terms = random_.below(30);
    settings.truncate = random_.below(30);
    if (random_.below(4) == 0) settings.curvature.damping = log_uniform(1e-3, 1);
    if (random_.below(4) == 0) settings.curvature.difference_cross = true;
    if (trial.method == "forward") inner.steps = std::min<int64_t>(inner.steps, 10);  // it takes T m products
    return make_estimator(trial.method, settings);
  }

  void make(size_t kind) {
    switch (kind) {
      case 0:
        return make_random_quadratic();
      case 1:
        return make_quadratic();
      case 2:
        return make_ridge();
      case 3:
        return make_toy();
      case 4:
        return make_counterexample();
      default:
        return make_softmax(kind);
    }
  }

  Matrix with_decay(Matrix hessian) const {
    for (int64_t i = 0; i < hessian.rows; ++i) hessian(i, i) += decay_;
    return hessian;
  }
  static Matrix symmetric(const Matrix& a) {
    Matrix result(a.rows, a.columns);
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < a.columns; ++j) result(i, j) = (a(i, j) + a(j, i)) / 2;
    }
    return result;
  }
  static Vector negative(Vector v) {
    for (Real& each : v) each = -each;
    return v;
  }

  void make_random_quadratic() {
    const int64_t n = 1 + random_.below(20), m = 1 + random_.below(10);
    auto problem = std::make_unique<RandomQuadratic>(n, m, log_uniform(1, 1e6), random_.next(), tensors_);
    x_ = problem->outer_start;
    start_ = problem->start;
    const Matrix cross(problem->cross), outer_cross(problem->outer_cross),
        outer = symmetric(Matrix(problem->outer));
    const Vector x = precise(x_), target = precise(problem->target);
    answer_ = quadratic_answer(
        with_decay(Matrix(problem->hessian)),
        negative(sum(transposed_product(cross, x), precise(problem->linear))),
        [&](const Vector&) { return cross; },
        [&](const Vector& w) {
          return PreciseOuter{sum(product(outer, sum(w, target, -1)), transposed_product(outer_cross, x)),
                              sum(product(outer_cross, w), x)};
        });
    problem_ = std::move(problem);
  }

  // The stored matrices, read off by unit vectors: such products are exact.
  static Matrix stored_hessian(const Problem& problem, const at::Tensor& w, const at::Tensor& x) {
    const auto linear = problem.linearize(w, x, Batch{});
    const at::Tensor identity = at::eye(w.numel(), w.options());
    std::vector<at::Tensor> rows;
    for (int64_t i = 0; i < w.numel(); ++i) rows.push_back(linear->hessian(identity[i]));
    return symmetric(Matrix(at::stack(rows)));
  }

  void make_quadratic() {
    QuadraticOptions options;
    options.dimension = 1 + random_.below(6);
    options.outer_dimension = 1 + random_.below(6);
    options.samples = options.dimension + random_.below(100);
    options.seed = random_.next();
    options.tensors = tensors_;
    auto problem = std::make_unique<Quadratic>(options);
    x_ = normal({options.outer_dimension}, 1);
    start_ = normal({options.dimension}, log_uniform(0.1, 10));
    const at::Tensor zero = at::zeros({options.outer_dimension}, tensors_);
    const auto linear = problem->linearize(start_, x_, Batch{});
    std::vector<at::Tensor> columns;
    const at::Tensor identity = at::eye(options.dimension, tensors_);
    for (int64_t i = 0; i < options.dimension; ++i) columns.push_back(linear->cross(identity[i]));
    const Matrix cross(at::stack(columns, 1)), outer(problem->outer_matrix());
    const Vector b = precise(problem->inner_gradient(at::zeros_like(start_), zero, Batch{}));
    const Vector target = precise(problem->outer_target());
    answer_ = quadratic_answer(
        with_decay(stored_hessian(*problem, start_, x_)),
        negative(sum(transposed_product(cross, precise(x_)), b)), [&](const Vector&) { return cross; },
        [&](const Vector& w) {
          return PreciseOuter{squares_gradient(outer, target, w, 2),
                              Vector(static_cast<size_t>(options.outer_dimension))};
        });
    problem_ = std::move(problem);
  }

  void make_ridge() {
    RidgeOptions options;
    options.features = 1 + random_.below(12);
    options.samples = options.features + random_.below(40);
    options.valid_samples = 1 + random_.below(40);
    options.seed = random_.next();
    options.tensors = tensors_;
    auto problem = std::make_unique<Ridge>(options);
    const int64_t n = options.features;
    x_ = normal({n}, 2) - 3;
    start_ = normal({n}, log_uniform(0.1, 10));
    // exp(-1000) is zero: what is left is A'A / N and A'b / N.
    const at::Tensor without = at::full({n}, -1000.0, tensors_);
    Matrix hessian = stored_hessian(*problem, start_, without);
    const Vector x = precise(x_);
    for (int64_t i = 0; i < n; ++i) hessian(i, i) += std::exp(at_(x, i));
    const Matrix valid(problem->valid_matrix());
    const Vector target = precise(problem->valid_target());
    answer_ = quadratic_answer(
        with_decay(hessian),
        negative(precise(problem->inner_gradient(at::zeros_like(start_), without, Batch{}))),
        [&](const Vector& w) {
          Matrix cross(n, n);
          for (int64_t i = 0; i < n; ++i) cross(i, i) = std::exp(at_(x, i)) * at_(w, i);
          return cross;
        },
        [&](const Vector& w) {
          return PreciseOuter{
              squares_gradient(valid, target, w, 1 / static_cast<Real>(options.valid_samples)),
              Vector(static_cast<size_t>(n))};
        });
    problem_ = std::move(problem);
  }

  void make_toy() {
    const bool interfering = random_.below(2) == 0;
    problem_ = std::make_unique<Toy>(tensors_, interfering);
    x_ = normal({2}, 2);
    start_ = normal({2}, log_uniform(0.1, 10));
    const Vector x = precise(x_), curvature = {1, 0.5L};
    Matrix hessian(2, 2), cross(2, 2);
    for (int64_t i = 0; i < 2; ++i) {
      hessian(i, i) = at_(curvature, i);
      cross(i, i) = -at_(curvature, i);
    }
    answer_ = quadratic_answer(
        with_decay(hessian), product(hessian, x), [&](const Vector&) { return cross; },
        [&](const Vector& w) {
          PreciseOuter outer{Vector(2), Vector(2)};
          for (int64_t i = 0; i < 2; ++i) {
            at_(outer.w, i) = 2 * at_(w, i) + 20 * std::sin(at_(w, i)) * std::cos(at_(w, i));
            if (interfering) at_(outer.x, i) = 10 * (at_(x, i) - (i == 0 ? 1 : 0));
          }
          return outer;
        });
  }

  void make_counterexample() {
    const double target = random_.normal();
    problem_ = std::make_unique<Counterexample>(tensors_, target);
    x_ = normal({1}, 2);
    start_ = normal({1}, log_uniform(0.1, 10));
    const Real x = precise(x_)[0], w = x / (1 + static_cast<Real>(decay_));
    answer_ = {{w}, {x - target + w / (1 + static_cast<Real>(decay_))}};
  }

  void make_softmax(size_t kind) {
    const bool ridge = kind == 5 || kind == 6;  // one regulariser per feature, else one weight per example
    GaussianClassesOptions data;
    data.classes = 2 + random_.below(3);
    data.features = 1 + random_.below(5);
    data.unit_rows = random_.below(2) == 0;
    const int64_t samples = data.classes + random_.below(25),
                  valid_samples = data.classes + random_.below(25);
    const uint64_t seed = random_.next();
    const double regularization = log_uniform(1e-3, 1);
    LabelledExamples train, valid;
    if (kind == 5) {
      auto problem = std::make_unique<SoftmaxRegression>(
          SoftmaxRegressionOptions{data, samples, valid_samples, seed, tensors_});
      train = problem->train();
      valid = problem->valid();
      problem_ = std::move(problem);
    } else {
      const double scale = log_uniform(0.1, 5);
      train = draw_gaussian_classes(data, samples, seed, "train");
      valid = draw_gaussian_classes(data, valid_samples, seed, "valid");
      for (LabelledExamples* each : {&train, &valid}) {
        each->features = each->features * scale;
        // Some zeros, so that some matrices are compressed.
        if (random_.below(3) == 0)
          each->features = each->features * (random_.uniform(each->features.sizes(), at::kDouble) < 0.3);
        *each = each->to(tensors_);
      }
      const LabelledRows train_rows{FeatureMatrix::from_dense(train.features), train.labels};
      const LabelledRows valid_rows{FeatureMatrix::from_dense(valid.features), valid.labels};
      if (kind == 6) {
        problem_ = std::make_unique<RegularizedSoftmax>(train_rows, valid_rows, data.classes);
      } else if (kind == 7) {
        CleaningData both{
            .train = train, .valid = valid, .classes = data.classes, .replaced = {}, .wrong = {}};
        problem_ = std::make_unique<HyperCleaning>(both, regularization, tensors_);
      } else {
        problem_ = std::make_unique<WeightedSoftmax>(train_rows, valid_rows, data.classes, regularization);
      }
    }
    x_ = normal({ridge ? data.features : samples}, 2);
    start_ = normal({data.classes * data.features}, log_uniform(0.1, 5));
    answer_ = softmax_answer(train, valid, data, ridge, regularization, kind == 6);
  }

  PreciseAnswer softmax_answer(const LabelledExamples& train, const LabelledExamples& valid,
                               const GaussianClassesOptions& data, bool ridge, double regularization,
                               bool by_feature) const {
    const auto terms = [&](const LabelledExamples& examples) {
      PreciseSoftmax s;
      s.rows = Matrix(examples.features);
      const at::Tensor labels = examples.labels.contiguous();
      s.labels.assign(labels.data_ptr<int64_t>(), labels.data_ptr<int64_t>() + labels.numel());
      s.weights.assign(static_cast<size_t>(examples.size()), 1 / static_cast<Real>(examples.size()));
      s.ridge.assign(static_cast<size_t>(data.features), 0);
      s.classes = data.classes;
      s.by_feature = by_feature;
      return s;
    };
    PreciseSoftmax inner = terms(train), outer = terms(valid);
    const Vector x = precise(x_);
    const int64_t count = train.size();
    Vector slopes(static_cast<size_t>(count)), own_ridge = inner.ridge;
    for (int64_t j = 0; j < data.features; ++j) {
      at_(own_ridge, j) = ridge ? std::exp(at_(x, j)) * 2 / static_cast<Real>(data.classes * data.features)
                                : 2 * static_cast<Real>(regularization);
      at_(inner.ridge, j) = at_(own_ridge, j) + decay_;
    }
    for (int64_t i = 0; !ridge && i < count; ++i) {
      const Real power = std::exp(-at_(x, i)), share = 1 / static_cast<Real>(count);
      at_(inner.weights, i) = share / (1 + power);
      at_(slopes, i) = share * power / ((1 + power) * (1 + power));
    }
    PreciseAnswer answer;
    answer.w = inner.solution();
    const Vector v = positive_solve(inner.hessian(answer.w), outer.gradient(answer.w));
    answer.hypergradient.assign(static_cast<size_t>(ridge ? data.features : count), 0);
    for (int64_t j = 0; ridge && j < data.features; ++j) {
      for (int64_t k = 0; k < data.classes; ++k) {
        at_(answer.hypergradient, j) -=
            at_(own_ridge, j) * at_(answer.w, inner.index(j, k)) * at_(v, inner.index(j, k));
      }
    }
    for (int64_t i = 0; !ridge && i < count; ++i) {
      const Vector r = inner.residual(i, answer.w);
      for (int64_t j = 0; j < data.features; ++j) {
        for (int64_t k = 0; k < data.classes; ++k) {
          at_(answer.hypergradient, i) -=
              at_(slopes, i) * at_(r, k) * inner.rows(i, j) * at_(v, inner.index(j, k));
        }
      }
    }
    return answer;
  }

  Random random_;
  at::TensorOptions tensors_;
  double decay_ = 0;
  std::unique_ptr<Problem> problem_;
  at::Tensor x_, start_;
  PreciseAnswer answer_;
};

inline Trial run_trial(uint64_t seed) { return TrialMaker(seed).run(); }

}  // namespace bilevel::test
