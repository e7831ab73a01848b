#include "bilevel/meta/block_cg.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/core/require.h"

namespace bilevel::meta {
namespace {

std::vector<double> read(const Tensor& t) {
  const Tensor on_cpu = t.to(at::kCPU, at::kDouble).contiguous();
  return {on_cpu.data_ptr<double>(), on_cpu.data_ptr<double>() + on_cpu.numel()};
}

// One number a block, as a column that scales the block's row.
Tensor column(const std::vector<double>& values, const Tensor& like) {
  return at::tensor(values, at::kDouble).to(like.options()).unsqueeze(1);
}

std::vector<double> row_dots(const Tensor& a, const Tensor& b) { return read((a * b).sum(1)); }

int severity(Status status) {
  switch (status) {
    case Status::not_finite:
      return 4;
    case Status::negative_curvature:
      return 3;
    case Status::breakdown:
      return 2;
    case Status::max_iterations:
      return 1;
    default:
      return 0;
  }
}

struct Block {
  Status status = Status::max_iterations;  // until it ends otherwise
  double norm = 0;                         // |b|
  double squared = 0, direction_squared = 0;
  double best_squared = 0;
  double largest_curvature = 0;
  bool running = true;
  void end(Status how) {
    status = how;
    running = false;
  }
};

// As in the core's conjugate gradients: within rounding of zero the sign means nothing, but a positive
// semi-definite A with d'Ad = 0 has Ad = 0.
Status status_of_curvature(const Block& block, double curvature, double stretch, double epsilon) {
  if (!std::isfinite(curvature)) return Status::not_finite;
  if (curvature > 10 * epsilon * block.largest_curvature) return Status::ok;
  if (curvature < -64 * epsilon * block.largest_curvature) return Status::negative_curvature;
  return stretch > 10 * std::sqrt(epsilon) * block.largest_curvature ? Status::negative_curvature
                                                                     : Status::breakdown;
}

void check(const Tensor& b, int64_t blocks) {
  if (!b.defined() || b.dim() != 1 || blocks < 1 || b.size(0) % blocks != 0) {
    throw std::invalid_argument(
        fmt::format("block_conjugate_gradient: the right-hand side must be a flat vector of {} equal blocks, "
                    "but it has {} elements",
                    blocks, b.defined() ? b.numel() : 0));
  }
}

void finish(LinearResult& result, const std::vector<Block>& blocks, double epsilon) {
  result.relative_residual = 0;
  result.status = Status::converged;
  for (Block block : blocks) {
    const double relative = block.norm > 0 ? std::sqrt(block.best_squared) / block.norm : 0;
    if (block.status == Status::breakdown && relative <= 100 * epsilon) block.status = Status::converged;
    if (severity(block.status) > severity(result.status)) result.status = block.status;
    if (!(relative <= result.relative_residual)) result.relative_residual = relative;
  }
}

}  // namespace

LinearResult block_conjugate_gradient(const MatrixProduct& matrix, const Tensor& right_hand_side,
                                      int64_t count, const KrylovSolveOptions& options) {
  options.validate("block_conjugate_gradient");
  check(right_hand_side, count);
  const Tensor b = right_hand_side.detach().view({count, -1});
  const double epsilon = b.scalar_type() == at::kFloat ? std::numeric_limits<float>::epsilon()
                                                       : std::numeric_limits<double>::epsilon();
  LinearResult result;
  const auto product = [&](const Tensor& v) {
    ++result.products;
    const Tensor av = matrix(v.flatten()).detach().view({count, -1});
    return options.damping == 0 ? av : at::add(av, v, options.damping);
  };

  Tensor x = options.warm_start.defined() ? options.warm_start.detach().view({count, -1}) : at::zeros_like(b);
  Tensor r = options.warm_start.defined() ? b - product(x) : b;
  Tensor d = r;
  Tensor best = x;
  std::vector<Block> blocks(static_cast<size_t>(count));
  const std::vector<double> norms = row_dots(b, b), squares = row_dots(r, r);
  for (size_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks[i];
    block.norm = std::sqrt(norms[i]);
    block.squared = block.direction_squared = block.best_squared = squares[i];
    if (!std::isfinite(norms[i]) || !std::isfinite(squares[i])) block.end(Status::not_finite);
  }
  const auto whole = [&](const std::vector<double>& parts) {
    double sum = 0;
    for (const double part : parts) sum += part;
    return std::sqrt(sum);
  };
  result.right_hand_side_norm = whole(norms);
  result.residuals.push_back(whole(squares));

  const double tolerance = std::max(options.relative_tolerance, epsilon);
  while (result.iterations < options.max_iterations) {
    bool any = false;
    for (Block& block : blocks) {
      if (block.running && std::sqrt(block.squared) <= tolerance * block.norm) block.end(Status::converged);
      any = any || block.running;
    }
    if (!any) break;

    const Tensor q = product(d);
    const std::vector<double> dq = row_dots(d, q), qq = row_dots(q, q);
    std::vector<double> step(blocks.size(), 0.0), ratio(blocks.size(), 0.0);
    for (size_t i = 0; i < blocks.size(); ++i) {
      Block& block = blocks[i];
      if (!block.running) continue;
      const double curvature = dq[i] / block.direction_squared;
      const Status status =
          status_of_curvature(block, curvature, std::sqrt(qq[i] / block.direction_squared), epsilon);
      if (status != Status::ok) {
        block.end(status);
        continue;
      }
      block.largest_curvature = std::max(block.largest_curvature, curvature);
      step[i] = block.squared / dq[i];
    }
    const Tensor steps = column(step, b);
    // A block at rest may hold what is not finite, and zero times that is not zero.
    const Tensor moves = steps.ne(0);
    r = at::where(moves, r - steps * q, r);
    x = at::where(moves, x + steps * d, x);
    const std::vector<double> next = row_dots(r, r);
    std::vector<double> better(blocks.size(), 0.0);
    for (size_t i = 0; i < blocks.size(); ++i) {
      Block& block = blocks[i];
      if (step[i] == 0) continue;
      if (!std::isfinite(next[i])) {
        block.end(Status::not_finite);
        continue;
      }
      ratio[i] = next[i] / block.squared;
      block.direction_squared = next[i] + ratio[i] * ratio[i] * block.direction_squared;
      block.squared = next[i];
      if (next[i] <= block.best_squared) {
        block.best_squared = next[i];
        better[i] = 1;
      }
    }
    best = at::where(column(better, b).ne(0), x, best);
    d = at::where(moves, r + column(ratio, b) * d, d);
    result.residuals.push_back(whole(next));
    ++result.iterations;
  }

  // The last iterate where it ended as it should, that of the smallest residual where it did not.
  std::vector<double> last(blocks.size(), 0.0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks[i];
    if (block.running && std::sqrt(block.squared) <= tolerance * block.norm) block.end(Status::converged);
    if (block.status == Status::converged || block.status == Status::max_iterations) {
      last[i] = 1;
      block.best_squared = block.squared;
    }
  }
  result.solution = at::where(column(last, b).ne(0), x, best).flatten();
  result.vectors_kept = 5;
  finish(result, blocks, epsilon);
  return result;
}

void BlockCgOptions::validate() const {
  require_at_least("blocks", blocks, 1);
  require_at_least("terms", steps, 0);
  if (!(relative_tolerance >= 0)) {
    throw std::invalid_argument(
        fmt::format("relative_tolerance = {}: must be at least 0", relative_tolerance));
  }
  curvature.validate();
}

BlockCg::BlockCg(BlockCgOptions options) : options_(std::move(options)) { options_.validate(); }

Hypergradient BlockCg::compute(Oracle& oracle, const HypergradientRequest& request) const {
  return implicit_hypergradient(oracle, request, options_.curvature,
                                [&](CurvatureProducts& products, const Tensor& p) {
                                  KrylovSolveOptions cg;
                                  cg.max_iterations = options_.steps;
                                  cg.relative_tolerance = options_.relative_tolerance;
                                  cg.warm_start = request.warm_start;
                                  return block_conjugate_gradient(products.matrix(), p, options_.blocks, cg);
                                });
}

}  // namespace bilevel::meta
