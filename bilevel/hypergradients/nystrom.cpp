#include "bilevel/hypergradients/nystrom.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bilevel/core/random.h"

namespace bilevel {
namespace {

struct LowRank {
  Tensor vectors;  // (n, r), orthonormal
  Tensor values;   // (r), descending, positive
  bool negative_curvature = false;
  bool finite = true;
};

// A ~ (A Q) (Q' A Q)^+ (A Q)' for an orthonormal Q, as an eigendecomposition. The middle matrix is inverted
// on its positive eigenvalues only; a clearly negative one is reported.
LowRank low_rank(const MatrixProduct& matrix, int64_t size, int64_t rank, uint64_t seed,
                 const at::TensorOptions& options) {
  Random random(seed);
  const Tensor q = std::get<0>(at::linalg_qr(random.normal({size, rank}, options)));
  std::vector<Tensor> columns;
  columns.reserve(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) columns.push_back(matrix(q.select(1, i).contiguous()));
  const Tensor y = at::stack(columns, 1);
  LowRank result;
  result.finite = at::isfinite(y).all().item<bool>();
  if (!result.finite) return result;  // a factorisation would throw, or worse, return
  const Tensor middle = q.t().mm(y);
  const auto [values, vectors] = at::linalg_eigh(0.5 * (middle + middle.t()));
  const double scale = values.abs().max().item<double>();
  const double rounding = scale * static_cast<double>(size) *
                          (c10::typeMetaToScalarType(options.dtype()) == at::kDouble
                               ? std::numeric_limits<double>::epsilon()
                               : static_cast<double>(std::numeric_limits<float>::epsilon()));
  result.negative_curvature = values.min().item<double>() < -10 * rounding;
  const Tensor positive = (values > rounding).nonzero().reshape({-1});
  if (positive.numel() == 0) return result;
  // A = F F' with F = Y V D^-1/2; its left singular vectors and squared singular values are what is wanted.
  const Tensor factor = y.mm(vectors.index_select(1, positive)) / values.index_select(0, positive).sqrt();
  const auto [u, s, vt] = at::linalg_svd(factor, /*full_matrices=*/false);
  const Tensor kept = (s.square() > rounding).nonzero().reshape({-1});
  result.vectors = u.index_select(1, kept);
  result.values = s.index_select(0, kept).square();
  return result;
}

}  // namespace

void NystromOptions::validate() const {
  if (rank < 1) throw std::invalid_argument(fmt::format("rank = {}: must be at least 1", rank));
  curvature.validate();
}

NystromEstimator::NystromEstimator(NystromOptions options) : options_(std::move(options)) {
  options_.validate();
}

Hypergradient NystromEstimator::compute(Oracle& oracle, const HypergradientRequest& request) const {
  CurvatureOptions undamped = options_.curvature;
  undamped.damping = 0;
  return implicit_hypergradient(oracle, request, undamped, [&](CurvatureProducts& products, const Tensor& p) {
    const int64_t rank = std::min(options_.rank, p.numel());
    const LowRank h = low_rank(products.matrix(), p.numel(), rank, options_.seed, p.options());
    LinearResult result;
    result.products = rank;
    result.iterations = rank;
    result.vectors_kept = 3 * rank;  // the directions, their products and the factor
    result.status = h.negative_curvature ? Status::negative_curvature : Status::ok;
    if (!h.values.defined() || h.values.numel() == 0) {
      // No positive curvature was found: there is nothing to invert. The estimate is df/dx, and the status
      // says why.
      result.solution = at::zeros_like(p);
      result.status = !h.finite              ? Status::not_finite
                      : h.negative_curvature ? Status::negative_curvature
                                             : Status::breakdown;
      return result;
    }
    const double rho = options_.curvature.damping;
    const double complement = rho > 0 ? rho : h.values.min().item<double>();
    const Tensor inside = h.vectors.t().mv(p);
    result.solution = h.vectors.mv(inside / (h.values + rho)) + (p - h.vectors.mv(inside)) / complement;
    return result;
  });
}

}  // namespace bilevel
