#pragma once
// Linear systems A v = b on a matrix-vector product. Every solve says how it ended: nothing here returns a
// zero or a limit-hit iterate in silence.
//
// b is a 1-d float or double tensor; everything follows its type and device. Where b itself is not finite
// there is no answer: the status is not_finite and the solution NaN, without a product. Misuse throws
// std::invalid_argument. A product's argument is the solver's own memory and changes after the call: clone it
// to keep it. What the product returns is only read, and may share memory with the argument.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

class FiniteChecks;  // core/finite.h

using MatrixProduct = std::function<Tensor(const Tensor&)>;

enum class Status {
  not_run,
  ok,                  // a formula that was evaluated as asked; there is no system to converge on
  converged,           // the residual is below the tolerance, or nothing but rounding
  max_iterations,      // as many steps as allowed, residual above the tolerance
  breakdown,           // a division by (nearly) zero that no further step can repair
  negative_curvature,  // v'Av < 0 was met: A is not positive definite
  diverged,            // the residual grows: the rate is too large for the spectrum
  not_finite,          // a NaN or an infinity came out of the product
};
std::string_view name_of(Status status);

struct LinearResult {
  Tensor solution;
  Status status = Status::not_run;
  std::vector<double> residuals;  // |b - A v_k|, from k = 0
  int64_t iterations = 0;
  int64_t products = 0;  // how often the matrix was applied
  double relative_residual =
      -1.0;  // the solution's |b - A v| / |b|; 0 where b = 0, -1 where it was not measured
  double right_hand_side_norm = 0;  // |b|
  double residual() const { return relative_residual < 0 ? -1.0 : relative_residual * right_hand_side_norm; }
  int64_t vectors_kept = 0;  // vectors of b's size held at once, the solution included
};

// For a symmetric positive definite A; `max_iterations` products, one more where warm-started. Converged and
// max_iterations return the last iterate (its energy error falls monotonically); breakdown,
// negative_curvature and not_finite return the iterate of smallest residual, which is the start where the
// first step already fails. b = 0 returns zero without a product. A singular A is solved where b is in its
// range. Residuals are recurred: true to about epsilon times the condition number.
struct KrylovSolveOptions {
  int64_t max_iterations = 10;      // 0 is legal and returns the start
  double relative_tolerance = 0.0;  // on |r| / |b|. 0 = take all the steps, but stop (converged) at the
                                    // type's epsilon: below it steps divide rounding by rounding
  double damping = 0.0;             // solves (A + damping I) v = b
  Tensor warm_start;                // undefined = zero; costs one product
  void validate(std::string_view solver) const;
};
LinearResult conjugate_gradient(const MatrixProduct& matrix, const Tensor& b,
                                const KrylovSolveOptions& options = {});

// Minimises the residual over the Krylov space of a symmetric A that may be indefinite or singular (Paige and
// Saunders 1975); products, tolerance and b = 0 as above. Breakdown: as far as rounding lets it be seen, b is
// not in the range of A, and the solution is a least-squares one (not that of smallest norm).
LinearResult minres(const MatrixProduct& matrix, const Tensor& b, const KrylovSolveOptions& options = {});

// rate * sum_{k=0..terms} (I - rate A)^k b: `terms` products, terms + 1 summands. The matrix may differ from
// product to product (independent minibatches): it receives the number of the product, from 0. The k-th
// summand is the residual of the sum before it, so residuals[0..terms] are free; the whole sum's would cost
// another product, so relative_residual is that of the sum without its last summand: an upper bound while the
// series contracts. Status: ok; not_finite; negative_curvature where a summand met u'Au < 0; diverged where
// the residuals grow.
using IndexedProduct = std::function<Tensor(const Tensor&, int64_t)>;
struct NeumannOptions {
  int64_t terms = 10;
  double rate = 0.1;
  FiniteChecks* checks = nullptr;  // of an oracle that may put looks at the device off; null = it looks
  void validate() const;
};
LinearResult neumann_series(const IndexedProduct& matrix, const Tensor& b, const NeumannOptions& options);

// v <- v - rate (A v - b), `steps` times; from zero the first step needs no product, and for one A the result
// is neumann_series with steps - 1 terms (another order of the same sums: equal to rounding, not in bits).
// Residuals and status as there; with a tolerance, converged (at an iterate whose residual was measured) or
// max_iterations take the place of ok, at the price of one read of the device a step.
struct FixedPointOptions {
  int64_t steps = 10;
  double rate = 0.1;
  double relative_tolerance = 0.0;
  Tensor warm_start;
  void validate() const;
};
LinearResult fixed_point(const IndexedProduct& matrix, const Tensor& b, const FixedPointOptions& options);

// Assembles A by b.numel() products and factorises it in double precision: Cholesky (converged), or LU where
// A is not positive definite (negative_curvature, and the solution is right all the same). Where A is
// singular to rounding: breakdown, with the least-squares solution of smallest norm. A not finite:
// not_finite, NaN. For small systems: throws std::invalid_argument above `limit` unknowns.
struct DirectOptions {
  int64_t limit = 4096;  // the double matrix of that size takes 134 MB
  double damping = 0.0;
  void validate() const;
};
LinearResult direct_solve(const MatrixProduct& matrix, const Tensor& b, const DirectOptions& options = {});
// A as a dense symmetric matrix (symmetrised), by `size` products with unit vectors.
Tensor assemble(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options);

}  // namespace bilevel
