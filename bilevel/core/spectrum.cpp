// Which method finds the extreme eigenvalues: dense where the matrix is small, Spectra on the CPU where it
// was found at configure time, and our own Lanczos elsewhere.
#include "bilevel/core/spectrum.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "bilevel/core/lanczos.h"
#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/core/solver_support.h"

#ifdef BILEVEL_HAS_SPECTRA
#include <Spectra/SymEigsSolver.h>
#endif

namespace bilevel {
namespace {

constexpr std::string_view spectrum_name = "extreme_eigenvalues";
const double not_a_number = std::numeric_limits<double>::quiet_NaN();

Spectrum dense(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options) {
  Spectrum spectrum;
  spectrum.method = "dense";
  spectrum.products = size;
  const Tensor a =
      assemble(matrix, size, options).to(at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
  if (!at::isfinite(a).all().item<bool>()) {
    spectrum.smallest = spectrum.largest = not_a_number;
    spectrum.status = Status::not_finite;
    return spectrum;
  }
  const Tensor values = at::linalg_eigvalsh(a);
  spectrum.smallest = values[0].item<double>();
  spectrum.largest = values[size - 1].item<double>();
  spectrum.status = Status::converged;
  return spectrum;
}

#ifdef BILEVEL_HAS_SPECTRA

// A / unit + 3 I. Spectra compares with absolute and eigenvalue-relative thresholds, which a matrix of size
// 1e-12 or a singular one never meets; with unit near |A| this spectrum lies within about [2, 4]. It also has
// no way to stop or to fail: both are exceptions here, told apart by `stopped_by`.
class ShiftedProduct {
 public:
  using Scalar = double;
  static constexpr double shift = 3;
  struct Stop {};

  ShiftedProduct(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options, double unit,
                 int64_t max_products)
      : matrix_(matrix), size_(size), options_(options), unit_(unit), max_products_(max_products) {}

  Eigen::Index rows() const { return size_; }
  Eigen::Index cols() const { return size_; }

  void perform_op(const double* in, double* out) const {
    if (products == max_products_) {
      stopped_by = Status::max_iterations;
      throw Stop{};
    }
    const at::TensorOptions doubles = at::TensorOptions().dtype(at::kDouble);
    // from_blob wants a mutable pointer; products only read their argument.
    const Tensor v = at::from_blob(const_cast<double*>(in), {size_}, doubles);
    Tensor y = at::from_blob(out, {size_}, doubles);
    const Tensor argument = v.to(options_);
    Tensor av;
    try {
      av = detail::checked_product(spectrum_name, matrix_(argument), argument);
    } catch (...) {
      thrown = std::current_exception();
      throw Stop{};
    }
    ++products;
    y.copy_(av).div_(unit_).add_(v, shift);
    if (!Eigen::Map<const Eigen::VectorXd>(out, size_).allFinite()) {
      stopped_by = Status::not_finite;
      throw Stop{};
    }
  }

  mutable int64_t products = 0;
  mutable Status stopped_by = Status::not_run;
  mutable std::exception_ptr thrown;

 private:
  const MatrixProduct& matrix_;
  int64_t size_;
  at::TensorOptions options_;
  double unit_;
  int64_t max_products_;
};

// Shows the Ritz values that have not converged, which Spectra keeps to itself.
class BothEnds : public Spectra::SymEigsSolver<ShiftedProduct> {
 public:
  using Spectra::SymEigsSolver<ShiftedProduct>::SymEigsSolver;
  double ritz(Eigen::Index i) const { return m_ritz_val[i]; }
};

Spectrum by_spectra(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options,
                    double tolerance, const SpectrumOptions& spectrum_options) {
  // A few steps of our own tell |A| and see the matrices of very few eigenvalues (zero, identity, rank one),
  // on which Spectra divides by zero.
  constexpr int64_t trial = 8;
  constexpr int64_t basis = 40;
  detail::LanczosOptions own;
  own.tolerance = tolerance;
  own.seed = spectrum_options.seed;
  const bool worthwhile = size > basis && spectrum_options.max_products >= trial + 2 * basis;
  own.max_products = worthwhile ? trial : spectrum_options.max_products;
  Spectrum spectrum = detail::lanczos(matrix, size, options, own);
  if (!worthwhile || spectrum.status != Status::max_iterations) return spectrum;

  const double unit = std::max(std::abs(spectrum.smallest), std::abs(spectrum.largest));
  ShiftedProduct op(matrix, size, options, unit, spectrum_options.max_products - spectrum.products);
  BothEnds eigenvalues(op, 2, basis);
  const Tensor start = Random(mix_seeds(spectrum_options.seed, 1)).normal({size}, at::kDouble);
  spectrum.status = Status::max_iterations;
  try {
    eigenvalues.init(start.data_ptr<double>());
    // The products end the loop, not the restarts. Our rule for eigenvalues near zero decides the tolerance,
    // as all of this shifted spectrum has the size of |A|.
    eigenvalues.compute(Spectra::SortRule::BothEnds, std::numeric_limits<int>::max(),
                        std::pow(tolerance, 1.5) / (ShiftedProduct::shift + 1));
    spectrum.status = Status::converged;
  } catch (const ShiftedProduct::Stop&) {
    if (op.thrown) std::rethrow_exception(op.thrown);
    spectrum.status = op.stopped_by;
  } catch (const std::runtime_error&) {
    // Spectra's own small eigenvalue problem failed: the estimates before it stand.
  }
  spectrum.products += op.products;
  spectrum.method = "spectra";
  if (spectrum.status == Status::not_finite) {
    spectrum.smallest = spectrum.largest = not_a_number;
    return spectrum;
  }
  const double a = unit * (eigenvalues.ritz(0) - ShiftedProduct::shift);
  const double b = unit * (eigenvalues.ritz(1) - ShiftedProduct::shift);
  // Rayleigh quotients all: the trial may have seen further than a run that was stopped.
  spectrum.smallest = std::min({a, b, spectrum.smallest});
  spectrum.largest = std::max({a, b, spectrum.largest});
  return spectrum;
}

#endif

Spectrum iterative(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options,
                   const SpectrumOptions& spectrum_options) {
  const bool single = at::typeMetaToScalarType(options.dtype()) == at::kFloat;
  const double standard = single ? 1e-4 : 1e-8;
  const double tolerance =
      spectrum_options.relative_tolerance > 0 ? spectrum_options.relative_tolerance : standard;
#ifdef BILEVEL_HAS_SPECTRA
  if (spectrum_options.prefer_spectra && options.device().is_cpu()) {
    return by_spectra(matrix, size, options, tolerance, spectrum_options);
  }
#endif
  detail::LanczosOptions own;
  own.tolerance = tolerance;
  own.max_products = spectrum_options.max_products;
  own.seed = spectrum_options.seed;
  // Small matrices end within `size` products if never restarted. Elsewhere more than 128 vectors save few
  // products and cost much orthogonalisation; a gigabyte at most, but not so few that restarts lose what they
  // found.
  const int64_t bytes = size * (single ? 4 : 8);
  own.max_basis = size <= 512 ? size : std::clamp<int64_t>((int64_t{1} << 30) / bytes, 24, 128);
  return detail::lanczos(matrix, size, options, own);
}

}  // namespace

void SpectrumOptions::validate() const {
  require_at_least(spectrum_name, "dense_below", dense_below, 0);
  require_at_least(spectrum_name, "max_products", max_products, 1);
  if (!(relative_tolerance >= 0 && relative_tolerance < 1)) {
    throw std::invalid_argument(fmt::format("{}: relative_tolerance = {}: must be at least 0 and below 1",
                                            spectrum_name, relative_tolerance));
  }
}

double Spectrum::condition_number() const {
  if (smallest <= std::max(rounding, 0.0)) return std::numeric_limits<double>::infinity();
  return largest / smallest;
}

double Spectrum::largest_safe_rate() const {
  return largest <= 0 ? std::numeric_limits<double>::infinity() : 2 / largest;
}

double Spectrum::contraction(double rate) const {
  return std::max(std::abs(1 - rate * smallest), std::abs(1 - rate * largest));
}

bool Spectrum::has_negative_curvature() const { return smallest < -rounding; }

bool spectra_available() {
#ifdef BILEVEL_HAS_SPECTRA
  return true;
#else
  return false;
#endif
}

Spectrum extreme_eigenvalues(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options,
                             const SpectrumOptions& spectrum_options) {
  spectrum_options.validate();
  require_at_least(spectrum_name, "size", size, 1);
  const at::ScalarType type = at::typeMetaToScalarType(options.dtype());
  detail::require_float_or_double(spectrum_name, "options", type);
  const at::TensorOptions plain = options.requires_grad(c10::nullopt);
  const bool small = size < spectrum_options.dense_below && size <= spectrum_options.max_products;
  Spectrum spectrum = small ? dense(matrix, size, plain) : iterative(matrix, size, plain, spectrum_options);
  const double epsilon = type == at::kFloat ? static_cast<double>(std::numeric_limits<float>::epsilon())
                                            : std::numeric_limits<double>::epsilon();
  spectrum.rounding = epsilon * std::sqrt(static_cast<double>(size)) *
                      std::max(std::abs(spectrum.smallest), std::abs(spectrum.largest));
  return spectrum;
}

}  // namespace bilevel
