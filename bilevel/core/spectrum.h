#pragma once
// Extreme eigenvalues of a symmetric matrix given by its products: what decides whether a rate is safe, how
// fast the inner loop contracts, and how many terms a series needs.

#include <cstdint>
#include <string>
#include <string_view>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

struct SpectrumOptions {
  int64_t dense_below = 64;  // assemble and factorise up to this size: exact, and cheaper than Lanczos
  // Of a Ritz pair's residual, over its eigenvalue; one that is small beside |A| counts as sqrt(tolerance)
  // |A|, or a singular matrix would never converge. 0 = 1e-8 in double precision, 1e-4 in single.
  double relative_tolerance = 0.0;
  int64_t max_products = 1000;
  uint64_t seed = 0;  // of Lanczos's starting vector
  // Spectra instead of the Lanczos on tensors, on the CPU where it was found at configure time. It keeps 40
  // vectors instead of 128 and takes two to three times the products, which are what costs.
  bool prefer_spectra = false;
  void validate() const;
};

// Where the products ran out (max_iterations) the values are Rayleigh quotients of the best vectors found, so
// the true spectrum reaches at least as far. Where a product was not finite they are NaN.
struct Spectrum {
  double smallest = 0;
  double largest = 0;
  Status status = Status::not_run;  // converged, max_iterations or not_finite
  int64_t products = 0;
  std::string_view method = "not run";  // dense, spectra, lanczos
  double rounding = 0;                  // eigenvalues nearer to zero than this count as zero

  // The quantities that a user asks for; rate is that of plain gradient descent.
  double condition_number() const;        // infinity where smallest is not above rounding
  double largest_safe_rate() const;       // 2 / largest; infinity where largest <= 0
  double contraction(double rate) const;  // max |1 - rate lambda| over the extremes
  bool has_negative_curvature() const;    // smallest below minus rounding
};

bool spectra_available();  // the library was compiled with Spectra

Spectrum extreme_eigenvalues(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options,
                             const SpectrumOptions& spectrum_options = {});

}  // namespace bilevel
