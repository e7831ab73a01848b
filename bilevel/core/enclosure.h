#pragma once
// Eigenvalues with a guarantee. What LAPACK returns is right but for an error of unknown sign; here a
// Cholesky factorisation decides (Rump, "Verification of positive definiteness", BIT 2006): if it runs to its
// end on A in floating point, then no eigenvalue of A is below -gamma / (1 - gamma) trace A with gamma =
// gamma_(n+1), because the factor R it found is that of A + E exactly with |E| <= gamma |R'||R| (Higham 2002,
// theorem 10.3). So a guess c of the smallest eigenvalue is tried on A - c I, a little lower each time until
// the factorisation runs through.

#include "bilevel/core/tensor.h"

namespace bilevel {

// Not above the smallest eigenvalue of the matrix's symmetric part (-infinity where none could be shown, as
// of numbers that are not finite), and not below the largest. In double precision on the CPU.
double smallest_eigenvalue_below(const Tensor& matrix);
double largest_eigenvalue_above(const Tensor& matrix);

// Not below |A|^2, from A'A or AA', whichever is smaller; the rounding of that product is added.
double squared_norm_above(const Tensor& matrix);

}  // namespace bilevel
