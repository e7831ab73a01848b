#pragma once
// Thick-restart Lanczos on tensors: the extreme eigenvalues on any device, without another library. Internal
// to core/; use extreme_eigenvalues.

#include <cstdint>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/core/tensor.h"

namespace bilevel::detail {

struct LanczosOptions {
  double tolerance = 1e-8;
  int64_t max_products = 1000;
  int64_t max_basis = 128;  // vectors of the matrix's size held at once
  uint64_t seed = 0;
};
// `options` say the type and the device. Fills all but `rounding`.
Spectrum lanczos(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options,
                 const LanczosOptions& lanczos_options);

}  // namespace bilevel::detail
