#pragma once
// The least number of terms (or steps) whose error is below a target, found by trying: doubling, then
// bisection. Errors are taken to fall on the whole; the answer itself is always one that was tried, or is
// called extrapolated.

#include <cstdint>
#include <functional>

namespace bilevel {

struct LeastTerms {
  int64_t terms = 0;
  double error = 0;           // of these terms
  bool reached = false;       // it is below the target
  bool extrapolated = false;  // by the contraction, from `tried`, the largest that was tried
  int64_t tried = 0;
};
struct LeastTermsOptions {
  int64_t first = 1;
  int64_t most = 1 << 20;
  double target = 0;
  double contraction = 1;  // of a term in the end; 1 = not known: no extrapolation
  // Below so many terms an error that does not fall is no floor: momentum's first steps from a point that is
  // half solved lower nothing.
  int64_t patient_until = 0;
  double floor = 0;  // part of every error that no term takes away, as far as it is known
};
// `affordable` is asked before every trial after the first.
LeastTerms least_terms(const std::function<double(int64_t terms)>& error_at, const LeastTermsOptions& options,
                       const std::function<bool(int64_t terms)>& affordable);

}  // namespace bilevel
