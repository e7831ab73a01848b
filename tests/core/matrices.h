#pragma once
// Symmetric matrices with a chosen spectrum, and a product that counts itself.

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/random.h"
#include "bilevel/core/tensor.h"

namespace bilevel::matrices {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
inline bool all_finite(const Tensor& v) { return at::isfinite(v).all().item<bool>(); }

inline Tensor vector_of(const std::vector<double>& values) {
  return at::tensor(values, at::TensorOptions().dtype(at::kDouble));
}

// Q diag(eigenvalues) Q' with a random orthogonal Q.
inline Tensor with_eigenvalues(const Tensor& eigenvalues, uint64_t seed) {
  const int64_t n = eigenvalues.numel();
  const Tensor q = std::get<0>(at::linalg_qr(Random(seed).normal({n, n}, eigenvalues.options())));
  const Tensor a = at::mm(q * eigenvalues, q.t());
  return (a + a.t()) / 2;
}
inline Tensor with_eigenvalues(const std::vector<double>& eigenvalues, uint64_t seed) {
  return with_eigenvalues(vector_of(eigenvalues), seed);
}

inline Tensor random_vector(int64_t n, uint64_t seed, at::ScalarType type = at::kDouble) {
  return Random(seed).normal({n}, at::TensorOptions().dtype(type));
}

inline MatrixProduct product_with(const Tensor& a) {
  return [a](const Tensor& v) { return at::mv(a, v); };
}

// A product that knows how often it was asked.
struct CountedProduct {
  explicit CountedProduct(MatrixProduct matrix) : matrix_(std::move(matrix)) {}
  explicit CountedProduct(const Tensor& a) : matrix_(product_with(a)) {}
  Tensor operator()(const Tensor& v) const {
    ++*calls;
    return matrix_(v);
  }
  Tensor operator()(const Tensor& v, int64_t) const { return (*this)(v); }
  std::shared_ptr<int64_t> calls = std::make_shared<int64_t>(0);

 private:
  MatrixProduct matrix_;
};

inline double norm2(const Tensor& v) { return at::linalg_vector_norm(v, 2).item<double>(); }
// |a - b| / |b|
inline double relative_error(const Tensor& a, const Tensor& b) {
  return norm2(a.to(at::kDouble) - b.to(at::kDouble)) / norm2(b.to(at::kDouble));
}
inline Tensor solve(const Tensor& a, const Tensor& b) {
  return at::linalg_solve(a, b.unsqueeze(1)).squeeze(1);
}

inline const std::vector<double> six_eigenvalues = {1, 4, 10, 20, 50, 100};

inline KrylovSolveOptions steps(int64_t count, double tolerance = 0) {
  KrylovSolveOptions options;
  options.max_iterations = count;
  options.relative_tolerance = tolerance;
  return options;
}

}  // namespace bilevel::matrices
