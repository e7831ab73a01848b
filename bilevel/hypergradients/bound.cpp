#include "bilevel/hypergradients/bound.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bilevel/core/enclosure.h"
#include "bilevel/core/rounding.h"
#include "bilevel/core/spectrum.h"

namespace bilevel {
namespace {

constexpr int64_t most_assembled = 256;  // of the smaller of w and x: that many cross products for |C|
constexpr int64_t forward_products = 50;

double length(const Tensor& t) { return t.norm().item<double>(); }

// All that is measured at the final iterate, on the full sets; lengths are rounded up.
struct Measured {
  double p = 0;         // |df/dw|
  double gradient = 0;  // |grad_w g|
  double residual = 0;  // |p - H v|
  double mismatch = 0;  // |e|
  double direct = 0;    // |df/dx|
  double v = 0;         // |v|
};

class Bounder {
 public:
  Bounder(Oracle& oracle, const HypergradientRequest& request, Hypergradient& result)
      : oracle_(oracle),
        w_(request.inner.final.w),
        x_(request.x),
        result_(result),
        linear_(oracle.linearize(w_, x_, Batch{})),
        through_x_(oracle.problem().inner_loss_uses_outer()) {
    const bool full = request.outer.is_full();
    const OuterGradients outer = full ? OuterGradients{result.outer_loss, result.p, result.direct}
                                      : oracle_.outer_gradients(w_, x_, Batch{});
    direct_ = outer.x;
    p_ = outer.w;
    if (request.inner.gradient_norm < 0) {
      result_.inner_gradient_norm = length(linear_->gradient());
    } else {
      result_.inner_gradient_norm = request.inner.gradient_norm;
    }
    find_vector();
  }

  void run(KnownConstants& known) {
    const Measured at_w = measure();
    if (!known.found) {
      known.constants = oracle_.problem().loss_constants(x_);
      if (known.constants) known.errors = evaluation_errors_of(oracle_.problem(), w_, x_);
      known.found = true;
    }
    std::optional<LossConstants> constants = known.constants;
    const std::optional<EvaluationErrors>& errors = known.errors;
    // Constants alone are not enough: what rounding adds would be a guess.
    BoundKind kind = errors ? BoundKind::rigorous : BoundKind::estimated;
    if (!constants) {
      constants = estimated_constants(at_w);
      if (!constants) return;
    } else if (!std::isfinite(constants->cross_norm)) {
      constants->cross_norm = cross_norm_at_w(errors, kind);
    }
    if (!through_x_) constants->cross_norm = 0;
    if (!(constants->strong_convexity > 0)) {
      result_.no_bound = "the inner loss is not strongly convex: regularise it";
      return;
    }
    result_.bound = {kind, bound(at_w, *constants, errors ? *errors : guessed_errors(at_w, *constants))};
    if (!std::isfinite(result_.bound.value)) {
      result_.bound = {};
      result_.no_bound = "a number in it is not finite";
    }
  }

 private:
  void find_vector() {
    v_ = result_.solution.defined() ? result_.solution : result_.gathered;
    if (v_.defined()) return;
    KrylovSolveOptions cg;
    cg.max_iterations = forward_products;
    cg.relative_tolerance = 1e-10;
    v_ = conjugate_gradient([this](const Tensor& u) { return linear_->hessian(u); }, p_, cg).solution;
  }

  Measured measure() {
    Tensor formula = direct_;
    if (through_x_) {
      std::tie(product_, cross_) = linear_->hessian_and_cross(v_);
      formula = direct_ - cross_;
    } else {
      product_ = linear_->hessian(v_);
    }
    // Differences in double precision are rounded once, relative to themselves or to what they are made of.
    const double one = std::numeric_limits<double>::epsilon(), own = machine_epsilon(w_);
    const double cross = through_x_ ? norm_above(cross_) : 0, product = norm_above(product_);
    const double p = norm_above(p_), direct = norm_above(direct_);
    // The norm in the inner loop's own precision, and the last rounding of each result (core/rounding.h).
    const double gradient_up = 1 + accumulated(w_.numel() + 4, own);
    const double tiny = underflow_of(w_);
    return {.p = p * (1 + own) + tiny,
            .gradient = (result_.inner_gradient_norm + vanishing_length(w_)) * gradient_up + tiny,
            .residual = norm_above(in_double(p_) - in_double(product_)) + own * (p + product) + 2 * tiny,
            .mismatch = norm_above(in_double(result_.value) - in_double(formula)) +
                        (2 * own + 4 * one) * (direct + cross) + 2 * tiny,
            .direct = direct,
            .v = norm_above(v_)};
  }
  static Tensor in_double(const Tensor& t) { return t.to(at::kDouble); }

  // Where the problem does not say how well it computes: a size to expect.
  EvaluationErrors guessed_errors(const Measured& m, const LossConstants& c) const {
    const double rounding = 32 * machine_epsilon(w_);
    return {.gradient = rounding * c.smoothness * length(w_),
            .outer_w = rounding * m.p,
            .outer_x = rounding * m.direct,
            .hessian = rounding * c.smoothness,
            .cross = rounding * c.cross_norm};
  }

  double bound(const Measured& m, const LossConstants& c, const EvaluationErrors& errors) const {
    const double mu = c.strong_convexity;
    const double delta = (m.gradient + errors.gradient) / mu;
    const double residual = m.residual + errors.outer_w + errors.hessian * m.v;
    const double mismatch = m.mismatch + errors.outer_x + (through_x_ ? errors.cross * m.v : 0);
    const double p = m.p + errors.outer_w + c.outer_w * delta;
    const double from_inner = c.outer_x + c.cross_norm * c.outer_w / mu + c.cross * p / mu +
                              c.cross_norm * c.hessian * p / (mu * mu);
    constexpr double up = 1 + 1e-14;  // for the roundings of these lines
    return (mismatch + from_inner * delta + c.cross_norm * residual / mu) * up;
  }

  // Where C has no bound over all w: the problem's own closed form at w, or what is measured there.
  double cross_norm_at_w(const std::optional<EvaluationErrors>& errors, BoundKind& kind) {
    if (errors && std::isfinite(errors->cross_norm)) return errors->cross_norm;
    const auto [value, exact] = cross_norm();
    if (!exact) kind = BoundKind::estimated;
    const auto columns = static_cast<double>(std::min(x_.numel(), w_.numel()));
    return errors ? value + errors->cross * std::sqrt(columns) * (1 + 1e-14) : value;
  }

  // |C| at w and whether all of C was seen: from all its columns or rows where they are few.
  std::pair<double, bool> cross_norm() {
    if (!through_x_) return {0.0, true};
    const bool by_x = x_.numel() <= w_.numel();
    const int64_t size = by_x ? x_.numel() : w_.numel();
    if (size <= most_assembled) {
      const Tensor identity = at::eye(size, w_.options());
      std::vector<Tensor> columns;
      for (int64_t i = 0; i < size; ++i) {
        columns.push_back(by_x ? linear_->cross_transposed(identity[i]) : linear_->cross(identity[i]));
      }
      return {std::sqrt(squared_norm_above(at::stack(columns))) * (1 + 1e-15), true};
    }
    const MatrixProduct square = [&](const Tensor& u) {
      return by_x ? linear_->cross(linear_->cross_transposed(u))
                  : linear_->cross_transposed(linear_->cross(u));
    };
    const Spectrum spectrum = extreme_eigenvalues(square, size, w_.options(), rough());
    return {std::sqrt(std::max(spectrum.largest, 0.0)), false};
  }

  static SpectrumOptions rough() { return {.relative_tolerance = 1e-2, .max_products = 100}; }

  // From the spectrum at w and the point w - delta grad / |grad|, which is as far away as w* can be.
  std::optional<LossConstants> estimated_constants(const Measured& m) {
    const Spectrum spectrum = extreme_eigenvalues([this](const Tensor& u) { return linear_->hessian(u); },
                                                  w_.numel(), w_.options(), rough());
    if (!(spectrum.smallest > spectrum.rounding)) {
      result_.no_bound = fmt::format(
          "the inner Hessian's smallest eigenvalue is {:.3g}: without positive curvature there is no bound",
          spectrum.smallest);
      return std::nullopt;
    }
    LossConstants c;
    c.strong_convexity = spectrum.smallest;
    c.smoothness = spectrum.largest;
    c.cross_norm = cross_norm().first;
    const double delta = m.gradient / spectrum.smallest;
    const double resolved = std::sqrt(machine_epsilon(w_)) * length(w_);  // nearer points differ by rounding
    const double distance = std::max(delta, resolved);
    if (!(m.gradient > 0) || !(distance > 0)) return c;  // solved: the constants have nothing to multiply
    const Tensor other = at::sub(w_, linear_->gradient(), distance / m.gradient);
    const OuterGradients outer = oracle_.outer_gradients(other, x_, Batch{});
    c.outer_x = length(outer.x - direct_) / distance;
    c.outer_w = length(outer.w - p_) / distance;
    const double v = length(v_);
    if (v > 0) {
      const auto there = oracle_.linearize(other, x_, Batch{});
      c.hessian = length(there->hessian(v_) - product_) / (distance * v);
      if (through_x_) c.cross = length(there->cross(v_) - cross_) / (distance * v);
    }
    return c;
  }

  Oracle& oracle_;
  Tensor w_, x_;
  Hypergradient& result_;
  std::unique_ptr<Linearization> linear_;
  bool through_x_;
  Tensor direct_, p_, v_;   // df/dx, df/dw and the vector, on the full sets
  Tensor product_, cross_;  // H v and C v
};

}  // namespace

void add_error_bound(Oracle& oracle, const HypergradientRequest& request, Hypergradient& result,
                     KnownConstants* known) {
  if (result.status == Status::not_finite) {
    result.no_bound = "the estimate is not finite";
    return;
  }
  KnownConstants own;
  Bounder(oracle, request, result).run(known == nullptr ? own : *known);
}

bool is_vacuous(const ErrorBound& bound, double estimate_norm) {
  return bound.kind != BoundKind::none && bound.value >= estimate_norm;
}

}  // namespace bilevel
