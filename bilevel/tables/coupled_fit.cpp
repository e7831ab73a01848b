#include "bilevel/tables/coupled_fit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace bilevel {
namespace {

constexpr double intercept_ridge = 1e-3;      // a task whose rows are all of one class has no best intercept
constexpr double decrement_tolerance = 1e-6;  // of the summed loss; one more step squares it
constexpr double step_tolerance = 1e-3, derivative_tolerance = 1e-6;
constexpr int64_t most_newton_steps = 60, most_halvings = 40, most_cg_steps = 200;

// Scores matter up to a number that is the same for all classes, and the best weights of all classes add up
// to 0: this leaves that direction out, and keeps lengths.
Tensor class_contrasts(int64_t classes) {
  Tensor q = at::zeros({classes, classes - 1}, at::kDouble);
  for (int64_t k = 1; k < classes; ++k) {
    const double length = std::sqrt(static_cast<double>(k) * static_cast<double>(k + 1));
    q.narrow(0, 0, k).select(1, k - 1).fill_(-1 / length);
    q[k][k - 1] = static_cast<double>(k) / length;
  }
  return q;
}

Tensor sum_of_fit(const Tensor& values) { return values.flatten(1).sum(1); }

// One number for each fit beside a tensor with as many.
Tensor beside(const Tensor& of_fit, const Tensor& values) {
  std::vector<int64_t> sizes(static_cast<size_t>(values.dim()), 1);
  sizes[0] = -1;
  return of_fit.view(sizes);
}

}  // namespace

struct CoupledFit::Point {
  Tensor probabilities;  // fits x tasks x rows x classes
  Tensor gradient;       // as w
  Tensor hessian;        // of the losses: fits x tasks x size x size, size = contrasts x columns
};

// (H + ridge + A) w_t = b_t + A m for each task, where the mean m solves what is left: see the header.
struct CoupledFit::Preconditioner {
  Tensor factor, pull, towards, mean_factor;  // pull: A, of each of `size`; towards: (H + ridge + A)^-1 A

  Tensor operator()(const Tensor& b) const {
    const Tensor alone = at::cholesky_solve(b.flatten(2).unsqueeze(3), factor);
    if (!mean_factor.defined()) return alone.view(b.sizes());
    const Tensor mean = at::cholesky_solve((alone * pull.unsqueeze(1)).sum(1), mean_factor);
    return (alone + towards.matmul(mean.unsqueeze(1))).view(b.sizes());
  }
};

CoupledFit::CoupledFit(const TaskBlocks& blocks, const Tensor& chosen)
    : blocks_(blocks),
      chosen_(chosen),
      contrasts_(class_contrasts(blocks.classes())),
      w_(at::zeros({chosen.size(0), blocks.tasks(), blocks.classes() - 1, blocks.columns()}, at::kDouble)) {}

Tensor CoupledFit::scores() const {
  const Tensor in_contrasts = blocks_.features.unsqueeze(0).matmul(w_.mT());
  return in_contrasts.matmul(contrasts_.t());
}

Tensor CoupledFit::weights() const { return w_.mT().matmul(contrasts_.t()); }

void CoupledFit::start_from(const CoupledFit& other) {
  w_ = other.w_.mean(0, true).expand(w_.sizes()).clone();
}

// The gradient of coupling and regulariser.
Tensor CoupledFit::pulled(const Tensor& w) const {
  return laplacian_.matmul(w.flatten(2)).view(w.sizes()) * pull_ + w * ridge_;
}

Tensor CoupledFit::losses(const Tensor& w) const {
  const Tensor s = blocks_.features.unsqueeze(0).matmul(w.mT()).matmul(contrasts_.t());
  const Tensor entropy = -(s.log_softmax(3) * blocks_.targets).sum(3) * chosen_;
  return sum_of_fit(entropy) + 0.5 * sum_of_fit(w * pulled(w));
}

CoupledFit::Point CoupledFit::linearize() const {
  Point point;
  point.probabilities = scores().softmax(3);
  const Tensor slopes = (point.probabilities - blocks_.targets) * chosen_.unsqueeze(3);
  point.gradient = slopes.matmul(contrasts_).mT().matmul(blocks_.features) + pulled(w_);
  const int64_t fits = w_.size(0), tasks = w_.size(1), contrasts = w_.size(2), columns = w_.size(3);
  point.hessian = at::empty({fits, tasks, contrasts, columns, contrasts, columns}, at::kDouble);
  const Tensor means = point.probabilities.matmul(contrasts_);
  const Tensor transposed = blocks_.features.mT();
  for (int64_t a = 0; a < contrasts; ++a) {
    for (int64_t b = a; b < contrasts; ++b) {
      const Tensor both = point.probabilities.matmul(contrasts_.select(1, a) * contrasts_.select(1, b));
      const Tensor curvature = (both - means.select(3, a) * means.select(3, b)) * chosen_;
      for (int64_t fit = 0; fit < fits; ++fit) {  // one at a time: copies of the table are large
        const Tensor block = transposed.bmm(blocks_.features * curvature[fit].unsqueeze(2));
        point.hessian[fit].select(1, a).select(2, b).copy_(block);
        if (a != b) point.hessian[fit].select(1, b).select(2, a).copy_(block);
      }
    }
  }
  point.hessian = point.hessian.view({fits, tasks, contrasts * columns, contrasts * columns});
  return point;
}

CoupledFit::Preconditioner CoupledFit::factorize(const Point& point) const {
  const int64_t contrasts = w_.size(2);
  const Tensor alone = point.hessian + ridge_.repeat({contrasts}).diag();
  const Tensor pull = (mean_pull_ * pull_).repeat({contrasts});
  Preconditioner result;
  result.factor = at::linalg_cholesky(alone + pull.diag());
  if (mean_pull_ == 0) return result;
  result.towards = at::cholesky_solve(pull.diag().expand(alone.sizes()), result.factor);
  const Tensor of_mean = alone.matmul(result.towards).sum(1);
  result.mean_factor = at::linalg_cholesky(0.5 * (of_mean + of_mean.mT()));
  result.pull = pull.view({1, -1, 1});
  return result;
}

// One step length for each fit: none waits for another, and the numbers do not depend on which others there
// are.
Tensor CoupledFit::solve_newton(const Point& point, const Tensor& b, double tolerance) {
  const Preconditioner precondition = factorize(point);
  const auto product = [&](const Tensor& v) {
    return point.hessian.matmul(v.flatten(2).unsqueeze(3)).view(v.sizes()) + pulled(v);
  };
  Tensor x = precondition(b), residual = b - product(x);
  counts_.hessian_products += x.size(0);
  const Tensor enough = sum_of_fit(b.square()) * (tolerance * tolerance);
  Tensor direction, energy;
  for (int64_t step = 0; step < most_cg_steps; ++step) {
    const Tensor goes_on = sum_of_fit(residual.square()).gt(enough).to(at::kDouble);
    if (goes_on.sum().item<double>() == 0) break;
    const Tensor z = precondition(residual), next = sum_of_fit(residual * z);
    direction = step == 0 ? z : z + beside(next / energy.clamp_min(1e-300), z) * direction;
    energy = next;
    const Tensor along = product(direction);
    counts_.hessian_products += x.size(0);
    const Tensor bend = sum_of_fit(direction * along).clamp_min(1e-300);
    const Tensor length = beside(goes_on * energy / bend, x);
    x = x + length * direction;
    residual = residual - length * along;
  }
  return x;
}

void CoupledFit::solve(const Pulls& pulls) {
  const int64_t tasks = blocks_.tasks(), fits = w_.size(0);
  laplacian_ = 4 * (pulls.coupling.sum(1).diag() - pulls.coupling);
  ridge_ = at::full({blocks_.columns()}, 2 * pulls.regularizer, at::kDouble);
  ridge_[-1] = 2 * intercept_ridge;
  pull_ = at::ones({blocks_.columns()}, at::kDouble);
  pull_[-1] = pulls.intercepts;
  mean_pull_ = 4 * pulls.coupling.sum().item<double>() / static_cast<double>(std::max<int64_t>(tasks - 1, 1));
  counts_.fits += fits;
  Tensor loss = losses(w_);
  for (int64_t step = 0; step < most_newton_steps; ++step) {
    const Point point = linearize();
    counts_.gradients += fits;
    const Tensor direction = solve_newton(point, point.gradient, step_tolerance);
    const Tensor decrement = sum_of_fit(point.gradient * direction);
    if (!decrement.isfinite().all().item<bool>()) {
      throw std::runtime_error(
          "coupled regressions: a Newton step is not finite; are the features too large?");
    }
    Tensor length = at::ones_like(loss), w, there;
    for (int64_t halving = 0; halving < most_halvings; ++halving) {
      w = w_ - beside(length, w_) * direction;
      there = losses(w);
      const Tensor rounding = 1e-12 * (1 + loss.abs());
      const Tensor rises = there.gt(loss - 1e-4 * length * decrement + rounding);
      if (!rises.any().item<bool>()) break;
      length = at::where(rises, 0.5 * length, length);
    }
    w_ = w;
    loss = there;
    if (decrement.max().item<double>() < decrement_tolerance) return;
  }
  counts_.unconverged += fits;
}

// By the implicit function theorem, dw = -H^-1 d(gradient): the gradient stays zero as C and rho move.
PullDerivative CoupledFit::derivative(const Tensor& by_scores) {
  const Point point = linearize();
  const Tensor by_weights = by_scores.matmul(contrasts_).mT().matmul(blocks_.features);
  const Tensor v = solve_newton(point, by_weights, derivative_tolerance);
  const int64_t tasks = blocks_.tasks();
  const Tensor w = w_ - w_.mean(1, true), u = (v - v.mean(1, true)) * pull_;
  // (w_i - w_j) . (v_i - v_j), about the means: models that are nearly the same would leave rounding errors.
  const Tensor gram = w.transpose(0, 1).reshape({tasks, -1}).mm(u.transpose(0, 1).reshape({tasks, -1}).t());
  const Tensor own = gram.diagonal();
  const int64_t slopes = blocks_.columns() - 1;
  return {.coupling = -4 * (own.unsqueeze(1) + own.unsqueeze(0) - gram - gram.t()),
          .regularizer = -2 * (w_ * v).narrow(3, 0, slopes).sum().item<double>()};
}

}  // namespace bilevel
