#include "bilevel/tables/coupled_fit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace bilevel {
namespace {

constexpr double intercept_ridge = 1e-3;      // a task whose rows are all of one class has no best intercept
constexpr double decrement_tolerance = 1e-6;  // of the summed loss; one more step squares it
constexpr double step_tolerance = 1e-3, derivative_tolerance = 1e-6;
constexpr int64_t most_newton_steps = 60, most_halvings = 40, most_cg_steps = 200;
constexpr int64_t most_padding = 2;  // the longest task of a block over the shortest

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

// Of a preconditioner, which may be a little off: what rounding took from a nearly singular matrix is given
// back on its diagonal.
Tensor cholesky_of(const Tensor& matrix) {
  for (const double lift : {0.0, 1e-14, 1e-12, 1e-10, 1e-8}) {
    const Tensor lifted =
        lift == 0 ? matrix : matrix + at::diag_embed(lift * matrix.diagonal(0, -2, -1).abs());
    const auto [factor, failed] = at::linalg_cholesky_ex(lifted);
    if (!failed.any().item<bool>()) return factor;
  }
  throw std::runtime_error(
      "coupled regressions: a Hessian cannot be factorised; are the features too large, or of very different "
      "sizes?");
}

}  // namespace

struct CoupledFit::Point {
  Tensor gradient;  // as w
  Tensor hessian;   // of the losses: fits x tasks x size x size, size = contrasts x columns
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

struct CoupledFit::Direction {
  Tensor x;
  Tensor solved;  // bool, of each fit: to the tolerance
};

CoupledFit::CoupledFit(const CoupledRows& rows, const Tensor& chosen)
    : rows_(rows.task.numel()),
      blocks_(blocks_of(rows, chosen)),
      contrasts_(class_contrasts(rows.targets.size(1))),
      w_(at::zeros({chosen.size(0), rows.tasks, rows.targets.size(1) - 1, rows.features.size(1)},
                   at::kDouble)) {}

std::vector<CoupledFit::Block> CoupledFit::blocks_of(const CoupledRows& rows, const Tensor& chosen) {
  const Tensor counts = at::bincount(rows.task, {}, rows.tasks);
  const auto [sizes, by_size] = counts.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const int64_t* size = sizes.data_ptr<int64_t>();
  std::vector<Block> blocks;
  for (int64_t begin = 0, end = 0; begin < rows.tasks && size[begin] > 0; begin = end) {
    while (end < rows.tasks && size[end] > 0 && size[end] * most_padding >= size[begin]) ++end;
    Block block;
    block.tasks = std::get<0>(by_size.narrow(0, begin, end - begin).sort());
    const int64_t tasks = end - begin, length = size[begin];
    const Tensor place = at::full({rows.tasks}, -1, at::kLong);
    place.index_put_({block.tasks}, at::arange(tasks, at::kLong));
    const Tensor of_row = place.index_select(0, rows.task);
    const Tensor mine = of_row.ge(0).nonzero().squeeze(1);
    const Tensor order =
        std::get<1>(of_row.index_select(0, mine).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
    block.rows = mine.index_select(0, order);
    const Tensor here = of_row.index_select(0, block.rows);  // 0, 0, ..., 1, 1, ...
    const Tensor mine_counts = at::bincount(here, {}, tasks);
    const Tensor first = (mine_counts.cumsum(0) - mine_counts).index_select(0, here);
    block.slots = here * length + at::arange(here.numel(), at::kLong) - first;
    const auto padded = [&](const Tensor& values) {  // rows x ...
      std::vector<int64_t> shape = values.sizes().vec();
      shape[0] = tasks * length;
      Tensor flat = at::zeros(shape, at::kDouble);
      flat.index_copy_(0, block.slots, values.index_select(0, block.rows).to(at::kDouble));
      shape[0] = length;
      shape.insert(shape.begin(), tasks);
      return flat.view(shape);
    };
    block.features = padded(rows.features);
    block.targets = padded(rows.targets).unsqueeze(2);
    block.chosen = padded(chosen.t());
    block.left_out = block.chosen.eq(0).unsqueeze(3);
    blocks.push_back(std::move(block));
  }
  return blocks;
}

Tensor CoupledFit::block_scores(const Block& block, const Tensor& w) const {
  const int64_t fits = w.size(0), contrasts = w.size(2), columns = w.size(3), tasks = block.tasks.numel();
  const Tensor mine = w.index_select(1, block.tasks).permute({1, 3, 0, 2}).reshape({tasks, columns, -1});
  return block.features.bmm(mine).view({tasks, -1, fits, contrasts}).matmul(contrasts_.t());
}

Tensor CoupledFit::fitted_scores(const Block& block, const Tensor& w) const {
  return block_scores(block, w).masked_fill_(block.left_out, 0);
}

// The derivative by the weights of the block's tasks: fits x tasks x contrasts x columns.
Tensor CoupledFit::by_weights(const Block& block, const Tensor& by_scores) const {
  const int64_t fits = w_.size(0), contrasts = w_.size(2), tasks = block.tasks.numel();
  const Tensor slopes = by_scores.matmul(contrasts_).flatten(2);  // tasks x length x (fits contrasts)
  return block.features.mT().bmm(slopes).view({tasks, -1, fits, contrasts}).permute({2, 0, 3, 1});
}

Tensor CoupledFit::scores() const {
  const int64_t fits = w_.size(0), classes = contrasts_.size(0);
  Tensor all = at::empty({rows_, fits, classes}, at::kDouble);
  for (const Block& block : blocks_) {
    all.index_copy_(0, block.rows, block_scores(block, w_).flatten(0, 1).index_select(0, block.slots));
  }
  return all.transpose(0, 1);
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
  Tensor sum = 0.5 * sum_of_fit(w * pulled(w));
  for (const Block& block : blocks_) {
    const Tensor entropy = (fitted_scores(block, w).log_softmax(3) * block.targets).sum(3);
    sum = sum - (entropy * block.chosen).flatten(0, 1).sum(0);
  }
  return sum;
}

CoupledFit::Point CoupledFit::linearize() const {
  const int64_t fits = w_.size(0), tasks = w_.size(1), contrasts = w_.size(2), columns = w_.size(3);
  Point point;
  point.gradient = pulled(w_);
  point.hessian = at::zeros({fits, tasks, contrasts, columns, contrasts, columns}, at::kDouble);
  for (const Block& block : blocks_) {
    const Tensor p = fitted_scores(block, w_).softmax(3);
    const Tensor slopes = (p - block.targets) * block.chosen.unsqueeze(3);
    point.gradient.index_add_(1, block.tasks, by_weights(block, slopes));
    const Tensor means = p.matmul(contrasts_), transposed = block.features.mT();
    for (int64_t a = 0; a < contrasts; ++a) {
      for (int64_t b = a; b < contrasts; ++b) {
        const Tensor both = p.matmul(contrasts_.select(1, a) * contrasts_.select(1, b));
        const Tensor curvature = (both - means.select(3, a) * means.select(3, b)) * block.chosen;
        for (int64_t fit = 0; fit < fits; ++fit) {  // one at a time: copies of the table are large
          const Tensor part = transposed.bmm(block.features * curvature.select(2, fit).unsqueeze(2));
          point.hessian[fit].select(1, a).select(2, b).index_copy_(0, block.tasks, part);
          if (a != b) point.hessian[fit].select(1, b).select(2, a).index_copy_(0, block.tasks, part);
        }
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
  result.factor = cholesky_of(alone + pull.diag());
  if (mean_pull_ == 0) return result;
  result.towards = at::cholesky_solve(pull.diag().expand(alone.sizes()), result.factor);
  const Tensor of_mean = alone.matmul(result.towards).sum(1);
  result.mean_factor = cholesky_of(0.5 * (of_mean + of_mean.mT()));
  result.pull = pull.view({1, -1, 1});
  return result;
}

// One step length for each fit: none waits for another, and the numbers do not depend on which others there
// are.
CoupledFit::Direction CoupledFit::solve_newton(const Point& point, const Tensor& b, double tolerance) {
  const Preconditioner precondition = factorize(point);
  const auto product = [&](const Tensor& v) {
    return point.hessian.matmul(v.flatten(2).unsqueeze(3)).view(v.sizes()) + pulled(v);
  };
  Tensor x = precondition(b), residual = b - product(x);
  counts_.hessian_products += x.size(0);
  const Tensor enough = sum_of_fit(b.square()) * (tolerance * tolerance);
  Tensor direction, energy, broken = at::zeros_like(enough, at::kBool);
  for (int64_t step = 0;; ++step) {
    const Tensor solved = sum_of_fit(residual.square()).le(enough);
    if (step == most_cg_steps || solved.logical_or(broken).all().item<bool>()) return {x, solved};
    const Tensor z = precondition(residual), next = sum_of_fit(residual * z);
    direction = step == 0 ? z : z + beside(next / energy.clamp_min(1e-300), z) * direction;
    energy = next;
    const Tensor along = product(direction);
    counts_.hessian_products += x.size(0);
    const Tensor bend = sum_of_fit(direction * along);
    broken = broken.logical_or(bend.gt(0).logical_not());  // rounding has taken the curvature
    const Tensor length = beside((energy / bend).masked_fill(solved.logical_or(broken), 0), x);
    x = x + length * direction;
    residual = residual - length * along;
  }
}

void CoupledFit::solve(const Pulls& pulls) {
  const int64_t tasks = w_.size(1), fits = w_.size(0), columns = w_.size(3);
  laplacian_ = 4 * (pulls.coupling.sum(1).diag() - pulls.coupling);
  ridge_ = at::full({columns}, 2 * pulls.regularizer, at::kDouble);
  ridge_[-1] = 2 * intercept_ridge;
  pull_ = at::ones({columns}, at::kDouble);
  pull_[-1] = pulls.intercepts;
  mean_pull_ = 4 * pulls.coupling.sum().item<double>() / static_cast<double>(std::max<int64_t>(tasks - 1, 1));
  counts_.fits += fits;
  Tensor loss = losses(w_), converged;
  for (int64_t step = 0; step < most_newton_steps; ++step) {
    const Point point = linearize();
    counts_.gradients += fits;
    const Direction direction = solve_newton(point, point.gradient, step_tolerance);
    const Tensor decrement = sum_of_fit(point.gradient * direction.x);
    if (!(loss + decrement).isfinite().all().item<bool>()) {
      throw std::runtime_error(
          "coupled regressions: a Newton step is not finite; are the features too large?");
    }
    Tensor length = at::ones_like(loss), w, there, falls;
    for (int64_t halving = 0; halving < most_halvings; ++halving) {
      w = w_ - beside(length, w_) * direction.x;
      there = losses(w);
      const Tensor rounding = 1e-12 * (1 + loss.abs());
      falls = there.le(loss - 1e-4 * length * decrement + rounding);  // what is not a number does not
      if (falls.all().item<bool>()) break;
      length = at::where(falls, length, 0.5 * length);
    }
    w_ = at::where(beside(falls, w_), w, w_);
    loss = at::where(falls, there, loss);
    // A direction that was not solved for understates the decrement.
    converged = decrement.lt(decrement_tolerance).logical_and(direction.solved);
    if (converged.logical_or(falls.logical_not()).all().item<bool>()) break;
  }
  counts_.unconverged += fits - converged.sum().item<int64_t>();
}

// By the implicit function theorem, dw = -H^-1 d(gradient): the gradient stays zero as C and rho move.
PullDerivative CoupledFit::derivative(const Tensor& by_scores) {
  const Tensor of_rows = by_scores.transpose(0, 1);  // rows x fits x classes
  Tensor by_w = at::zeros_like(w_);
  for (const Block& block : blocks_) {
    const int64_t count = block.tasks.numel(), length = block.features.size(1);
    Tensor padded = at::zeros({count * length, w_.size(0), by_scores.size(2)}, at::kDouble);
    padded.index_copy_(0, block.slots, of_rows.index_select(0, block.rows));
    by_w.index_add_(1, block.tasks,
                    by_weights(block, padded.view({count, length, w_.size(0), by_scores.size(2)})));
  }
  const Direction direction = solve_newton(linearize(), by_w, derivative_tolerance);
  counts_.unsolved += direction.solved.logical_not().sum().item<int64_t>();
  const Tensor& v = direction.x;
  const int64_t tasks = w_.size(1), slopes = w_.size(3) - 1;
  const Tensor w = w_ - w_.mean(1, true), u = (v - v.mean(1, true)) * pull_;
  // (w_i - w_j) . (v_i - v_j), about the means: models that are nearly the same would leave rounding errors.
  const Tensor gram = w.transpose(0, 1).reshape({tasks, -1}).mm(u.transpose(0, 1).reshape({tasks, -1}).t());
  const Tensor own = gram.diagonal();
  return {.coupling = -4 * (own.unsqueeze(1) + own.unsqueeze(0) - gram - gram.t()),
          .regularizer = -2 * (w_ * v).narrow(3, 0, slopes).sum().item<double>()};
}

}  // namespace bilevel
