#pragma once
// What every problem's tests share: relative errors, random directions and finite differences.

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/core/problem.h"
#include "bilevel/core/random.h"

namespace bilevel::testing {

inline at::TensorOptions doubles() { return at::TensorOptions().dtype(at::kDouble); }
inline at::TensorOptions floats() { return at::TensorOptions().dtype(at::kFloat); }
inline Tensor vector(const std::vector<double>& values) { return at::tensor(values, doubles()); }
inline double value(const Tensor& scalar) { return scalar.item<double>(); }

// |a - b| / (|b| + tiny): zero against zero is zero.
inline double relative_error(const Tensor& a, const Tensor& b) {
  const Tensor left = a.detach().to(at::kDouble);
  const Tensor right = b.detach().to(at::kDouble);
  return value((left - right).norm()) / (value(right.norm()) + 1e-300);
}
inline double relative_error(double a, double b) { return std::abs(a - b) / (std::abs(b) + 1e-300); }

inline Tensor random_like(const Tensor& shape_of, uint64_t seed) {
  Random random(seed);
  return random.normal(shape_of.sizes(), shape_of.options());
}

// A generic point: the initial one moved at random, because at zero weights many wrong terms vanish.
struct Point {
  Tensor w, x;
};
inline Point generic_point(const Problem& problem, uint64_t seed = 11) {
  const Tensor w = problem.initial_inner(0);
  const Tensor x = problem.initial_outer(0);
  return {w + 0.3 * random_like(w, seed), x + 0.3 * random_like(x, seed + 1)};
}

// Central difference of a function along v; the truncation error is the step squared.
inline Tensor difference(const std::function<Tensor(const Tensor&)>& function, const Tensor& at_point,
                         const Tensor& v, double step = 3e-4) {
  // Four points: with two, rounding and the third derivative leave a loss no more than seven digits.
  const auto pair = [&](double h) { return function(at_point + h * v) - function(at_point - h * v); };
  return (8 * pair(step) - pair(2 * step)) / (12 * step);
}

// `parts` batches of equal size that hold every example once, not in order.
inline std::vector<Batch> partition(int64_t population, int64_t parts) {
  Random random(5);
  std::vector<Batch> batches;
  for (const Tensor& part : random.permutation(population).chunk(parts)) batches.push_back({part, 0});
  return batches;
}

inline Tensor dense(int64_t size, const std::function<Tensor(const Tensor&)>& product) {
  const Tensor identity = at::eye(size, doubles());
  std::vector<Tensor> columns;
  for (int64_t i = 0; i < size; ++i) columns.push_back(product(identity[i]));
  return at::stack(columns, 1);
}
inline Tensor dense_hessian(const Problem& problem, const Tensor& w, const Tensor& x) {
  const std::unique_ptr<Linearization> linear = problem.linearize(w, x, {});
  return dense(w.numel(), [&](const Tensor& v) { return linear->hessian(v); });
}
inline Tensor eigenvalues(const Tensor& symmetric) {
  return std::get<0>(at::linalg_eigh(symmetric));
}  // ascending

inline Tensor descend(const Problem& problem, Tensor w, const Tensor& x, int64_t steps, double rate) {
  for (int64_t t = 0; t < steps; ++t) w = w - rate * problem.inner_gradient(w, x, {});
  return w;
}

}  // namespace bilevel::testing
