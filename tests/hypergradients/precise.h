#pragma once
// Exact hypergradients in extended precision, written out by hand from the stored numbers: no tensor
// operation, no Oracle, nothing of the library takes part. What double precision leaves of an answer, about
// 1e-16, is large beside these errors, so that bounds can be compared with errors that are rounding alone.

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace bilevel::test {

using Real = long double;
using Vector = std::vector<Real>;

inline Vector precise(const at::Tensor& t) {
  const at::Tensor flat = t.detach().to(at::kDouble).contiguous();
  const double* from = flat.data_ptr<double>();
  return {from, from + flat.numel()};
}

struct Matrix {
  int64_t rows = 0, columns = 0;
  Vector entries;
  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), entries(static_cast<size_t>(r * c)) {}
  explicit Matrix(const at::Tensor& t) : rows(t.size(0)), columns(t.size(1)), entries(precise(t)) {}
  Real& operator()(int64_t i, int64_t j) { return entries[static_cast<size_t>(i * columns + j)]; }
  Real operator()(int64_t i, int64_t j) const { return entries[static_cast<size_t>(i * columns + j)]; }
};
inline Real& at_(Vector& v, int64_t i) { return v[static_cast<size_t>(i)]; }
inline Real at_(const Vector& v, int64_t i) { return v[static_cast<size_t>(i)]; }

inline Vector product(const Matrix& a, const Vector& v) {
  Vector result(static_cast<size_t>(a.rows));
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) at_(result, i) += a(i, j) * at_(v, j);
  }
  return result;
}
inline Vector transposed_product(const Matrix& a, const Vector& u) {
  Vector result(static_cast<size_t>(a.columns));
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) at_(result, j) += a(i, j) * at_(u, i);
  }
  return result;
}
inline Vector sum(Vector a, const Vector& b, Real factor = 1) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}
inline Real precise_length(const Vector& v) {
  Real squares = 0;
  for (const Real each : v) squares += each * each;
  return std::sqrt(squares);
}

// A^-1 b of a positive definite A, by Cholesky.
inline Vector positive_solve(Matrix a, Vector b) {
  const int64_t n = a.rows;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t k = 0; k < j; ++k) a(j, j) -= a(j, k) * a(j, k);
    if (!(a(j, j) > 0)) throw std::runtime_error("a matrix that should be positive definite is not");
    a(j, j) = std::sqrt(a(j, j));
    for (int64_t i = j + 1; i < n; ++i) {
      for (int64_t k = 0; k < j; ++k) a(i, j) -= a(i, k) * a(j, k);
      a(i, j) /= a(j, j);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < i; ++k) at_(b, i) -= a(i, k) * at_(b, k);
    at_(b, i) /= a(i, i);
  }
  for (int64_t i = n - 1; i >= 0; --i) {
    for (int64_t k = i + 1; k < n; ++k) at_(b, i) -= a(k, i) * at_(b, k);
    at_(b, i) /= a(i, i);
  }
  return b;
}

struct PreciseAnswer {
  Vector w, hypergradient;
};

// Where g = w'Hw / 2 + x'C w + b'w (C may belong to w* alone, as ridge's does) and f is any.
struct PreciseOuter {
  Vector w, x;  // df/dw and df/dx
};
inline PreciseAnswer quadratic_answer(const Matrix& hessian, const Vector& right,
                                      const std::function<Matrix(const Vector&)>& cross_at,
                                      const std::function<PreciseOuter(const Vector&)>& outer) {
  PreciseAnswer answer;
  answer.w = positive_solve(hessian, right);
  const PreciseOuter at_solution = outer(answer.w);
  const Vector v = positive_solve(hessian, at_solution.w);
  answer.hypergradient = sum(at_solution.x, product(cross_at(answer.w), v), -1);
  return answer;
}
// factor * A'(A w - b)
inline Vector squares_gradient(const Matrix& a, const Vector& b, const Vector& w, Real factor) {
  Vector result = transposed_product(a, sum(product(a, w), b, -1));
  for (Real& each : result) each *= factor;
  return result;
}

// Softmax regression, sum_i a_i CE_i(W) + sum_jk ridge_j W_jk^2 / 2, with W flat in either order.
struct PreciseSoftmax {
  Matrix rows;
  std::vector<int64_t> labels;
  Vector weights, ridge;  // of the examples, of the features
  int64_t classes = 0;
  bool by_feature = false;

  int64_t size() const { return classes * rows.columns; }
  int64_t index(int64_t feature, int64_t k) const {
    return by_feature ? feature * classes + k : k * rows.columns + feature;
  }
  Vector probabilities(int64_t i, const Vector& w) const {
    Vector s(static_cast<size_t>(classes));
    Real largest = -INFINITY, total = 0;
    for (int64_t k = 0; k < classes; ++k) {
      for (int64_t j = 0; j < rows.columns; ++j) at_(s, k) += rows(i, j) * at_(w, index(j, k));
      largest = std::max(largest, at_(s, k));
    }
    for (Real& each : s) total += each = std::exp(each - largest);
    for (Real& each : s) each /= total;
    return s;
  }
  Vector residual(int64_t i, const Vector& w) const {  // s - e_y
    Vector s = probabilities(i, w);
    at_(s, labels[static_cast<size_t>(i)]) -= 1;
    return s;
  }
  Vector gradient(const Vector& w) const {
    Vector result(static_cast<size_t>(size()));
    for (int64_t i = 0; i < rows.rows; ++i) {
      const Vector r = residual(i, w);
      for (int64_t j = 0; j < rows.columns; ++j) {
        for (int64_t k = 0; k < classes; ++k)
          at_(result, index(j, k)) += at_(weights, i) * at_(r, k) * rows(i, j);
      }
    }
    for (int64_t j = 0; j < rows.columns; ++j) {
      for (int64_t k = 0; k < classes; ++k) at_(result, index(j, k)) += at_(ridge, j) * at_(w, index(j, k));
    }
    return result;
  }
  Matrix hessian(const Vector& w) const {
    Matrix h(size(), size());
    for (int64_t i = 0; i < rows.rows; ++i) {
      const Vector s = probabilities(i, w);
      for (int64_t k = 0; k < classes; ++k) {
        for (int64_t l = 0; l < classes; ++l) {
          const Real curvature =
              at_(weights, i) * (k == l ? at_(s, k) - at_(s, k) * at_(s, k) : -at_(s, k) * at_(s, l));
          for (int64_t a = 0; a < rows.columns; ++a) {
            for (int64_t b = 0; b < rows.columns; ++b)
              h(index(a, k), index(b, l)) += curvature * rows(i, a) * rows(i, b);
          }
        }
      }
    }
    for (int64_t j = 0; j < rows.columns; ++j) {
      for (int64_t k = 0; k < classes; ++k) h(index(j, k), index(j, k)) += at_(ridge, j);
    }
    return h;
  }
  // Newton's method: damped while the gradient is large (g is convex), until it no longer falls.
  Vector solution() const {
    Vector w(static_cast<size_t>(size()));
    Real norm = precise_length(gradient(w));
    for (int iteration = 0; iteration < 200 && norm > 0; ++iteration) {
      const Vector step = positive_solve(hessian(w), gradient(w));
      Real damping = 1, next_norm = norm;
      Vector next;
      for (; damping > 1e-8L; damping /= 2) {
        next = sum(w, step, -damping);
        next_norm = precise_length(gradient(next));
        if (next_norm < norm) break;
      }
      if (!(next_norm < norm)) break;
      w = next;
      norm = next_norm;
    }
    return w;
  }
};

}  // namespace bilevel::test
