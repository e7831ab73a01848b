// Lanczos with full reorthogonalisation, restarted with the Ritz vectors of both ends (Wu and Simon,
// "Thick-restart Lanczos method for large symmetric eigenvalue problems", 2000). Orthogonalising against the
// whole basis gives the whole column of V'AV, so a restart needs no special case: its arrow appears by
// itself.
#include "bilevel/core/lanczos.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <tuple>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/core/solver_support.h"

namespace bilevel::detail {
namespace {

constexpr std::string_view lanczos_name = "extreme_eigenvalues";

// The Ritz pairs of the basis so far, on the CPU.
struct Ritz {
  Tensor values;   // ascending
  Tensor vectors;  // columns, in the basis
  double smallest, largest, norm;
  double smallest_residual, largest_residual;
};

Ritz ritz_of(const Tensor& projected, double next_norm) {
  Ritz ritz;
  std::tie(ritz.values, ritz.vectors) = at::linalg_eigh(projected);
  const int64_t last = projected.size(0) - 1;
  const double* values = ritz.values.data_ptr<double>();
  ritz.smallest = values[0];
  ritz.largest = values[last];
  ritz.norm = std::max(std::abs(ritz.smallest), std::abs(ritz.largest));
  // A V = V H + next e_last': what a Ritz vector's last coefficient leaves.
  ritz.smallest_residual = next_norm * std::abs(ritz.vectors[last][0].item<double>());
  ritz.largest_residual = next_norm * std::abs(ritz.vectors[last][last].item<double>());
  return ritz;
}

bool is_converged(const Ritz& ritz, double tolerance) {
  const double floor = std::sqrt(tolerance) * ritz.norm;
  return ritz.smallest_residual <= tolerance * std::max(std::abs(ritz.smallest), floor) &&
         ritz.largest_residual <= tolerance * std::max(std::abs(ritz.largest), floor);
}

}  // namespace

Spectrum lanczos(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options,
                 const LanczosOptions& lanczos_options) {
  const int64_t room = std::min({size, lanczos_options.max_basis, lanczos_options.max_products});
  Spectrum spectrum;
  spectrum.method = "lanczos";
  Tensor basis = at::empty({room, size}, options);  // orthonormal rows
  Tensor projected = at::zeros({room, room}, at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
  auto entry = projected.accessor<double, 2>();
  Tensor next = Random(lanczos_options.seed).normal({size}, options);
  next.div_(norm_of(next));
  const double epsilon = epsilon_of(next);

  int64_t used = 0;        // rows of the basis
  int64_t next_check = 4;  // eigenvalues of the projection are wanted now and then, not at every step
  double norm = 0;         // of the projection: a lower bound of |A|
  while (true) {
    basis.select(0, used).copy_(next);
    ++used;
    const Tensor v = basis.select(0, used - 1);
    const Tensor rows = basis.narrow(0, 0, used);
    const Tensor av = checked_product(lanczos_name, matrix(v), v);
    ++spectrum.products;
    const Tensor first = at::mv(rows, av);
    next = at::addmv(av, rows.t(), first, 1, -1);
    const Tensor second = at::mv(rows, next);  // twice is enough (Kahan, in Parlett's book)
    next.addmv_(rows.t(), second, 1, -1);
    const Tensor column = at::cat({first + second, at::linalg_vector_norm(next, 2).view({1})})
                              .to(at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
    const double* numbers = column.data_ptr<double>();
    double squares = 0;
    for (int64_t i = 0; i < used; ++i) {
      entry[i][used - 1] = entry[used - 1][i] = numbers[i];
      squares += numbers[i] * numbers[i];
    }
    const double next_norm = numbers[used];
    if (!std::isfinite(squares) || !std::isfinite(next_norm)) {
      spectrum.smallest = spectrum.largest = std::numeric_limits<double>::quiet_NaN();
      spectrum.status = Status::not_finite;
      return spectrum;
    }
    norm = std::max(norm, std::sqrt(squares));

    // An invariant space from a random start holds every distinct eigenvalue.
    const bool invariant = next_norm <= 10 * epsilon * norm || used == size;
    const bool out_of_products = spectrum.products == lanczos_options.max_products;
    const bool full = used == room;
    if (invariant || out_of_products || full || used >= next_check) {
      const Ritz ritz = ritz_of(projected.narrow(0, 0, used).narrow(1, 0, used), next_norm);
      const bool converged = invariant || is_converged(ritz, lanczos_options.tolerance);
      if (converged || out_of_products) {
        spectrum.smallest = ritz.smallest;
        spectrum.largest = ritz.largest;
        spectrum.status = converged ? Status::converged : Status::max_iterations;
        return spectrum;
      }
      next_check = used + std::max<int64_t>(4, used / 8);
      if (full) {
        // Neighbours of the wanted vectors stay too: they are what slows their convergence.
        const int64_t end = std::max<int64_t>(1, room / 4);
        const Tensor kept_vectors =
            at::cat({ritz.vectors.narrow(1, 0, end), ritz.vectors.narrow(1, room - end, end)}, 1);
        const Tensor kept_values =
            at::cat({ritz.values.narrow(0, 0, end), ritz.values.narrow(0, room - end, end)});
        basis.narrow(0, 0, 2 * end).copy_(at::mm(kept_vectors.t().to(basis.options()), basis));
        projected.zero_();
        projected.diagonal().narrow(0, 0, 2 * end).copy_(kept_values);
        used = 2 * end;
        next_check = used + 4;
      }
    }
    next.div_(next_norm);
  }
}

}  // namespace bilevel::detail
