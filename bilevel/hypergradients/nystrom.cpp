#include "bilevel/hypergradients/nystrom.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "bilevel/core/finite.h"
#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/fields/fields.h"

namespace bilevel {
namespace {

// `rank` directions as rows. Few unknowns: orthonormal, so that rank n is exact. Many: random signs, which
// are as good there (the rows are nearly orthogonal) and cost one random bit an entry.
Tensor random_directions(int64_t rank, int64_t size, uint64_t seed, const at::TensorOptions& options) {
  constexpr int64_t few = 1024;
  Random random(seed);
  if (size <= few) {
    return std::get<0>(at::linalg_qr(random.normal({size, rank}, options))).t().contiguous();
  }
  constexpr int64_t at_once = 64;  // bits of a random number
  const int64_t count = rank * size;
  std::vector<uint64_t> bits(static_cast<size_t>((count + at_once - 1) / at_once));
  for (uint64_t& word : bits) word = random.next();
  Tensor signs = at::empty({rank, size}, at::kFloat);
  float* const out = signs.data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(bits.size()), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const uint64_t word = bits[static_cast<size_t>(b)];
      float* const to = out + b * at_once;
      const int64_t length = std::min(at_once, count - b * at_once);
      for (int64_t i = 0; i < length; ++i) to[i] = static_cast<float>(2 * ((word >> i) & 1)) - 1;
    }
  });
  return signs.to(options);
}

// H ~ Y' (Q H Q')^+ Y with Y = Q H for the rows Q. Nothing of n's size is made but Q and Y: with M the
// inverse root of the middle matrix on its positive eigenvalues, H ~ F F' for F = Y'M, and F'F is a small
// matrix.
class LowRank {
 public:
  LowRank(const MatrixProduct& matrix, int64_t size, int64_t rank, uint64_t seed,
          const at::TensorOptions& options) {
    const Tensor q = random_directions(rank, size, seed, options);
    y_ = at::empty_like(q);
    for (int64_t i = 0; i < rank; ++i) y_[i].copy_(matrix(q[i]));
    finite_ = all_finite(y_);
    if (!finite_) return;  // a factorisation would throw, or worse, return

    const Tensor middle = q.mm(y_.t()).to(at::kDouble);
    const auto [values, vectors] = at::linalg_eigh(0.5 * (middle + middle.t()));
    const double epsilon = c10::typeMetaToScalarType(options.dtype()) == at::kDouble
                               ? std::numeric_limits<double>::epsilon()
                               : static_cast<double>(std::numeric_limits<float>::epsilon());
    const double relative_rounding = 10 * static_cast<double>(rank) * epsilon;
    const double rounding = values.abs().max().item<double>() * relative_rounding;
    negative_curvature_ = values.min().item<double>() < -10 * rounding;
    const Tensor positive = (values > rounding).nonzero().reshape({-1});
    if (positive.numel() == 0) return;

    const Tensor root = vectors.index_select(1, positive) / values.index_select(0, positive).sqrt();
    const Tensor gram = root.t().mm(y_.mm(y_.t()).to(at::kDouble)).mm(root);
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
    const Tensor inside = factor_.t().mv(y_.mv(p).to(at::kDouble)) / curvatures_;
    const Tensor change = inside * (1 / (curvatures_ + damping) - 1 / elsewhere);
    return at::add(p / elsewhere, y_.t().mv(factor_.mv(change).to(p.scalar_type())));
  }

 private:
  Tensor y_;           // (rank, n)
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
        "seed", [](O & o) -> auto& { return o.seed; }, "of the random directions");
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
    const LowRank h(products.matrix(), p.numel(), rank, options_.seed, p.options());
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
