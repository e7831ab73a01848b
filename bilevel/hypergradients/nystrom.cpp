#include "bilevel/hypergradients/nystrom.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "bilevel/core/finite.h"
#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/fields/fields.h"
#include "bilevel/hypergradients/random_signs.h"

namespace bilevel {
namespace {

// H ~ Y' (Q H Q')^+ Y with Y = Q H for the rows Q. Nothing of n's size is made but Q and Y: with M the
// inverse root of the middle matrix on its positive eigenvalues, H ~ F F' for F = Y'M, and F'F is a small
// matrix.
class LowRank {
 public:
  LowRank(const MatrixProduct& matrix, const Tensor& like, int64_t rank, uint64_t seed) {
    const auto [middle, gram_of_rows] = like.numel() > few && like.is_cpu()
                                            ? with_signs(matrix, like, rank, seed)
                                            : with_directions(matrix, like, rank, seed);
    finite_ = all_finite(gram_of_rows) && all_finite(middle);
    if (!finite_) return;  // a factorisation would throw, or worse, return

    const auto [values, vectors] = at::linalg_eigh(0.5 * (middle + middle.t()));
    const double epsilon = like.scalar_type() == at::kDouble
                               ? std::numeric_limits<double>::epsilon()
                               : static_cast<double>(std::numeric_limits<float>::epsilon());
    const double relative_rounding = 10 * static_cast<double>(rank) * epsilon;
    const double rounding = values.abs().max().item<double>() * relative_rounding;
    negative_curvature_ = values.min().item<double>() < -10 * rounding;
    const Tensor positive = (values > rounding).nonzero().reshape({-1});
    if (positive.numel() == 0) return;

    const Tensor root = vectors.index_select(1, positive) / values.index_select(0, positive).sqrt();
    const Tensor gram = root.t().mm(gram_of_rows).mm(root);
    const auto [curvatures, rotation] = at::linalg_eigh(0.5 * (gram + gram.t()));
    // Another scale than that of `values`: the directions need not have length one.
    const Tensor kept = (curvatures > curvatures.max() * relative_rounding).nonzero().reshape({-1});
    curvatures_ = curvatures.index_select(0, kept);
    factor_ = root.mm(rotation.index_select(1, kept));
  }

  bool finite() const { return finite_; }
  bool negative_curvature() const { return negative_curvature_; }
  bool empty() const { return !curvatures_.defined() || curvatures_.numel() == 0; }
  double smallest_curvature() const { return curvatures_.min().item<double>(); }

  // (H + damping)^-1 p on the directions found, p / elsewhere off them.
  Tensor solve(const Tensor& p, double damping, double elsewhere) const {
    // The eigenvectors are F R S^-1/2; their part of p goes through the small matrices only.
    const auto change_of = [&](const Tensor& products) {
      const Tensor inside = factor_.t().mv(products.to(at::kDouble)) / curvatures_;
      return factor_.mv(inside * (1 / (curvatures_ + damping) - 1 / elsewhere));
    };
    if (rows_.empty()) return at::add(p / elsewhere, y_.t().mv(change_of(y_.mv(p)).to(p.scalar_type())));
    Tensor result = p / elsewhere;
    detail::add_rows_(result, rows_, change_of(detail::rows_times(rows_, p.contiguous())));
    return result;
  }

 private:
  // With more unknowns than this the directions are random signs, which are as good there (they are nearly
  // orthogonal) and cost one random bit an entry; with fewer orthonormal, so that rank n is exact.
  static constexpr int64_t few = 1024;

  static Tensor directions(const Tensor& like, int64_t rank, uint64_t seed) {
    if (like.numel() <= few) {
      Random random(seed);
      const Tensor normal = random.normal({like.numel(), rank}, like.options());
      return std::get<0>(at::linalg_qr(normal)).t().contiguous();
    }
    const detail::RandomSigns signs(rank, like.numel(), seed);
    Tensor q = at::empty({rank, like.numel()}, like.options().device(at::kCPU));
    for (int64_t i = 0; i < rank; ++i) {
      Tensor row = q[i];
      signs.write(i, row);
    }
    return q.to(like.device());
  }

  // Q Y' and Y Y', both in double.
  std::pair<Tensor, Tensor> with_directions(const MatrixProduct& matrix, const Tensor& like, int64_t rank,
                                            uint64_t seed) {
    const Tensor q = directions(like, rank, seed);
    y_ = at::empty_like(q);
    for (int64_t i = 0; i < rank; ++i) y_[i].copy_(matrix(q[i]));
    return {q.mm(y_.t()).to(at::kDouble), y_.mm(y_.t()).to(at::kDouble)};
  }

  std::pair<Tensor, Tensor> with_signs(const MatrixProduct& matrix, const Tensor& like, int64_t rank,
                                       uint64_t seed) {
    const detail::RandomSigns signs(rank, like.numel(), seed);
    for (int64_t i = 0; i < rank; ++i) {
      Tensor direction = at::empty_like(like, at::MemoryFormat::Contiguous);
      signs.write(i, direction);
      rows_.push_back(matrix(direction).contiguous());
    }
    const auto products = signs.products(rows_);
    return {products.signs_rows, products.rows_rows};
  }

  std::vector<Tensor> rows_;  // of Y where the directions are signs; none: y_ has them
  Tensor y_;                  // (rank, n)
  Tensor factor_;      // (rank, kept): Y' factor_ has the eigenvectors, scaled by the roots of the curvatures
  Tensor curvatures_;  // (kept), positive
  bool finite_ = true;
  bool negative_curvature_ = false;
};

}  // namespace

void NystromOptions::validate() const {
  require_at_least("rank", rank, 1);
  curvature.validate();
}

const Fields<NystromOptions>& NystromOptions::fields() {
  static const Fields<NystromOptions> table = [] {
    using O = NystromOptions;
    Fields<O> f;
    f.add(
         "terms", [](O & o) -> auto& { return o.rank; }, "K: the rank, one Hessian product each")
        .in(at_least(1, bounds::within_step));
    f.add(
        "seed", [](O & o) -> auto& { return o.seed; }, "random seed for the directions");
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    return f;
  }();
  return table;
}

NystromEstimator::NystromEstimator(NystromOptions options) : options_(std::move(options)) {
  options_.validate();
}

Hypergradient NystromEstimator::compute(Oracle& oracle, const HypergradientRequest& request) const {
  CurvatureOptions undamped = options_.curvature;
  undamped.damping = 0;
  return implicit_hypergradient(oracle, request, undamped, [&](CurvatureProducts& products, const Tensor& p) {
    const int64_t rank = std::min(options_.rank, p.numel());
    const LowRank h(products.matrix(), p, rank, options_.seed);
    LinearResult result;
    result.products = rank;
    result.iterations = rank;
    result.vectors_kept = 2 * rank;  // the directions and their products
    result.status = h.negative_curvature() ? Status::negative_curvature : Status::ok;
    if (!h.finite()) {
      result.status = Status::not_finite;
      result.solution = at::full_like(p, std::numeric_limits<double>::quiet_NaN());
    } else if (h.empty()) {
      // No positive curvature was found: there is nothing to invert. The estimate is df/dx, and the status
      // says why.
      if (!h.negative_curvature()) result.status = Status::breakdown;
      result.solution = at::zeros_like(p);
    } else {
      const double rho = options_.curvature.damping;
      result.solution = h.solve(p, rho, rho > 0 ? rho : h.smallest_curvature());
    }
    return result;
  });
}

}  // namespace bilevel
