#include "bilevel/tables/lasso_path.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bilevel/tables/unseen_gain.h"

namespace bilevel {
namespace {

constexpr double path_factor = 0.25,
                 path_end = 7;  // of lambda's logarithm: steps, and how far below the first
constexpr int64_t most_sweeps = 1000;
constexpr double sweep_tolerance = 1e-5;    // of a change of predictions, as a share of the targets' size
constexpr double strongest_logarithm = 16;  // of the penalty of a column that is left out
constexpr double smallest_square = 1e-290;  // so that a perfect fit has a logarithm
constexpr double smallest_size = 1e-6;      // of a coefficient, as a share of the largest

// What all of it is computed from: centred rows.
struct Centred {
  Tensor rows, targets, mean, gram, product;
  double target_mean = 0, target_size = 0;

  Centred(const HeldOutRows& all, const Tensor& index) {
    const Tensor chosen = all.scaled.index_select(0, index).narrow(1, 0, all.columns());
    const Tensor values = all.targets.index_select(0, index);
    mean = chosen.mean(0);
    target_mean = values.mean().item<double>();
    rows = chosen - mean;
    targets = values - target_mean;
    gram = rows.t().mm(rows).contiguous();
    product = rows.t().mm(targets).squeeze(1).contiguous();
    target_size = targets.norm().item<double>();
  }
  Tensor sizes(const Tensor& ridge_logarithms) const {
    if (!ridge_logarithms.defined()) return at::ones_like(product);
    const Tensor matrix = gram + at::diag(ridge_logarithms.exp());
    const Tensor w = at::cholesky_solve(product.unsqueeze(1), at::linalg_cholesky(matrix)).squeeze(1).abs();
    const double largest = std::max(w.max().item<double>(), std::numeric_limits<double>::min());
    return (w / largest).clamp_min(smallest_size);
  }
};

double softened(double value, double threshold) {
  return value > threshold ? value - threshold : value < -threshold ? value + threshold : 0;
}

// Stops by predictions that change by less than `least` in a sweep.
Tensor descend(const Tensor& gram, const Tensor& product, const Tensor& thresholds, const Tensor& start,
               double least) {
  const int64_t columns = product.numel();
  Tensor weights = start.clone(), gradient = product - gram.mv(start);  // X'(y - X w)
  const double* g = gram.data_ptr<double>();
  const double* t = thresholds.data_ptr<double>();
  double *w = weights.data_ptr<double>(), *r = gradient.data_ptr<double>();
  for (int64_t sweep = 0; sweep < most_sweeps; ++sweep) {
    double largest = 0;
    for (int64_t j = 0; j < columns; ++j) {
      const double* row = g + j * columns;
      if (!(row[j] > 0)) continue;  // a constant column
      const double next = softened(r[j] + row[j] * w[j], t[j]) / row[j], change = next - w[j];
      if (change == 0) continue;
      w[j] = next;
      for (int64_t k = 0; k < columns; ++k) r[k] -= change * row[k];
      largest = std::max(largest, std::abs(change) * std::sqrt(row[j]));
    }
    if (largest <= least) break;
  }
  return weights;
}

}  // namespace

Tensor fit_lasso(const Tensor& gram, const Tensor& product, const Tensor& thresholds, const Tensor& start) {
  return descend(gram.contiguous(), product.contiguous(), thresholds.contiguous(), start, 1e-12);
}

LassoPath lasso_path(const HeldOutRows& rows, const Tensor& ridge_logarithms) {
  const Tensor held = rows.fold.ge(0).nonzero().squeeze(1);
  const Centred all(rows, rows.fitted());
  const Tensor sizes = all.sizes(ridge_logarithms);
  const double first = (all.product * sizes).abs().max().item<double>();
  std::vector<double> lambdas;
  for (double step = 0; step <= path_end; step += path_factor) lambdas.push_back(first * std::exp(-step));

  const auto count = static_cast<int64_t>(lambdas.size());
  Tensor differences = at::zeros({count, rows.scaled.size(0)}, at::kDouble);
  for (int64_t k = 0; k < rows.folds; ++k) {
    const Centred part(rows, rows.fold.ne(k).nonzero().squeeze(1));
    const Tensor part_sizes = part.sizes(ridge_logarithms), index = rows.fold.eq(k).nonzero().squeeze(1);
    const Tensor x = rows.scaled.index_select(0, index).narrow(1, 0, rows.columns()) - part.mean;
    const Tensor y = rows.targets.index_select(0, index).squeeze(1) - part.target_mean;
    Tensor w = at::zeros_like(part.product);
    for (int64_t i = 0; i < count; ++i) {
      w = descend(part.gram, part.product, (lambdas[static_cast<size_t>(i)] / part_sizes).contiguous(), w,
                  sweep_tolerance * part.target_size);
      differences[i].index_put_({index}, x.mv(w) - y);
    }
  }
  differences = differences.index_select(1, held);
  const int64_t best = differences.square().mean(1).argmin().item<int64_t>();
  LassoPath path;
  path.differences = differences[best];
  path.lambda = lambdas[static_cast<size_t>(best)];
  Tensor w = at::zeros_like(all.product);
  for (int64_t i = 0; i <= best; ++i) {
    const double least =
        i < best ? sweep_tolerance * all.target_size : 1e-3 * sweep_tolerance * all.target_size;
    w = descend(all.gram, all.product, (lambdas[static_cast<size_t>(i)] / sizes).contiguous(), w, least);
  }
  path.logarithms = (path.lambda / sizes / w.abs()).log().clamp(-strongest_logarithm, strongest_logarithm);
  return path;
}

std::vector<double> likelihood_shares(const std::vector<Tensor>& differences, uint64_t seed) {
  const Tensor squares = at::stack(differences, 1).square();
  const auto count = static_cast<double>(squares.size(0));
  const Tensor shares = bootstrap_shares(squares.size(0), seed, [&](const Tensor& weights) {
    const Tensor means = squares.t().mv(weights / count).clamp_min(smallest_square);
    return means.log() * (-0.5 * count);
  });
  return {shares.data_ptr<double>(), shares.data_ptr<double>() + shares.numel()};
}

}  // namespace bilevel
