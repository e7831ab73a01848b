// Extreme eigenvalues: dense, Spectra and our Lanczos against each other and against spectra that were
// chosen.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "bilevel/core/spectrum.h"
#include "tests/core/matrices.h"

namespace bilevel {
namespace {

using matrices::CountedProduct;
using matrices::product_with;
using matrices::random_vector;
using matrices::vector_of;
using matrices::with_eigenvalues;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

enum class Method { dense, spectra, lanczos };

SpectrumOptions by(Method method) {
  SpectrumOptions options;
  options.dense_below = method == Method::dense ? 100000 : 0;
  options.prefer_spectra = method == Method::spectra;
  return options;
}

class EveryMethod : public ::testing::TestWithParam<Method> {};
INSTANTIATE_TEST_SUITE_P(Spectrum, EveryMethod,
                         ::testing::Values(Method::dense, Method::spectra, Method::lanczos));

TEST_P(EveryMethod, FindsBothEndsToEightDigits) {
  const auto check = [&](const Tensor& eigenvalues, uint64_t seed) {
    const Tensor a = with_eigenvalues(eigenvalues, seed);
    const CountedProduct counted(a);
    const Spectrum spectrum = extreme_eigenvalues(counted, a.size(0), a.options(), by(GetParam()));
    const double smallest = eigenvalues.min().item<double>();
    const double largest = eigenvalues.max().item<double>();
    EXPECT_EQ(spectrum.status, Status::converged);
    EXPECT_NEAR(spectrum.smallest / smallest, 1, 1e-8);
    EXPECT_NEAR(spectrum.largest / largest, 1, 1e-8);
    EXPECT_EQ(*counted.calls, spectrum.products);
  };
  check(at::linspace(1, 10, 100, at::kDouble), 1);
  check(at::linspace(-3, 7, 150, at::kDouble), 2);
  check(at::cat({vector_of({-0.4, -0.1}), at::linspace(0.001, 0.1, 110, at::kDouble), vector_of({5, 25})}),
        3);
  check(1e-9 * at::linspace(1, 10, 100, at::kDouble), 4);
  check(1e9 * at::linspace(1, 10, 100, at::kDouble), 4);
  check(-at::linspace(1, 10, 100, at::kDouble), 5);
}

TEST_P(EveryMethod, FollowsFloatToFourDigits) {
  const Tensor eigenvalues = at::linspace(-1, 10, 120, at::kDouble);
  const Tensor a = with_eigenvalues(eigenvalues, 1).to(at::kFloat);
  const auto matrix = [&](const Tensor& v) {
    EXPECT_EQ(v.scalar_type(), at::kFloat);
    return at::mv(a, v);
  };
  const Spectrum spectrum = extreme_eigenvalues(matrix, 120, a.options(), by(GetParam()));
  EXPECT_EQ(spectrum.status, Status::converged);
  EXPECT_NEAR(spectrum.smallest, -1, 1e-4);
  EXPECT_NEAR(spectrum.largest, 10, 1e-3);
}

TEST_P(EveryMethod, SurvivesMatricesOfFewEigenvalues) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double allowed = type == at::kDouble ? 1e-12 : 1e-5;
    for (const int64_t n : {1, 2, 3, 5, 70, 200}) {
      const auto run = [&](const MatrixProduct& matrix) {
        return extreme_eigenvalues(matrix, n, at::TensorOptions().dtype(type), by(GetParam()));
      };
      const Spectrum zero = run([](const Tensor& v) { return at::zeros_like(v); });
      EXPECT_EQ(zero.status, Status::converged);
      EXPECT_EQ(zero.smallest, 0);
      EXPECT_EQ(zero.largest, 0);
      EXPECT_FALSE(zero.has_negative_curvature());
      EXPECT_EQ(zero.condition_number(), matrices::infinity);

      const Spectrum identity = run([](const Tensor& v) { return v; });
      EXPECT_EQ(identity.status, Status::converged) << n;
      EXPECT_NEAR(identity.smallest, 1, allowed);
      EXPECT_NEAR(identity.largest, 1, allowed);
      EXPECT_NEAR(identity.condition_number(), 1, allowed);

      const Tensor u = random_vector(n, 3, type);
      const Spectrum rank_one = run([&](const Tensor& v) { return u * at::dot(u, v); });
      const double square = at::dot(u, u).item<double>();
      EXPECT_EQ(rank_one.status, Status::converged) << n;
      EXPECT_NEAR(rank_one.largest / square, 1, allowed) << n;
      EXPECT_NEAR(rank_one.smallest / square, n == 1 ? 1 : 0, allowed) << n;
      EXPECT_FALSE(rank_one.has_negative_curvature()) << n << " " << rank_one.smallest;
      EXPECT_EQ(std::isinf(rank_one.condition_number()), n > 1) << n << " " << rank_one.smallest;
    }
  }
}

TEST_P(EveryMethod, ConvergesOnSingularMatrices) {
  const Tensor eigenvalues = at::cat({at::zeros({60}, at::kDouble), at::linspace(0.1, 3, 60, at::kDouble)});
  const Tensor a = with_eigenvalues(eigenvalues, 4);
  const Spectrum spectrum = extreme_eigenvalues(product_with(a), 120, a.options(), by(GetParam()));
  EXPECT_EQ(spectrum.status, Status::converged);
  EXPECT_NEAR(spectrum.smallest, 0, 1e-11);
  EXPECT_NEAR(spectrum.largest, 3, 1e-8);
  EXPECT_FALSE(spectrum.has_negative_curvature());
}

TEST_P(EveryMethod, TightTolerancesEndWithAStatus) {
  const Tensor a = with_eigenvalues(at::logspace(-6, 0, 100, 10, at::kDouble), 4);
  SpectrumOptions options = by(GetParam());
  options.relative_tolerance = 1e-15;
  options.max_products = 400;
  const CountedProduct counted(a);
  const Spectrum spectrum = extreme_eigenvalues(counted, 100, a.options(), options);
  EXPECT_TRUE(spectrum.status == Status::converged || spectrum.status == Status::max_iterations);
  EXPECT_NEAR(spectrum.largest, 1, 1e-10);
  EXPECT_LE(*counted.calls, 400);
}

TEST_P(EveryMethod, NotFiniteProductsAreReported) {
  for (const int64_t bad : {1, 5, 30}) {
    int64_t calls = 0;
    const Tensor diagonal = at::linspace(1, 2, 100, at::kDouble);
    const auto matrix = [&](const Tensor& v) {
      return ++calls == bad ? v * matrices::not_a_number : v * diagonal;
    };
    const Spectrum spectrum = extreme_eigenvalues(matrix, 100, at::kDouble, by(GetParam()));
    EXPECT_EQ(spectrum.status, Status::not_finite) << bad;
    EXPECT_TRUE(std::isnan(spectrum.smallest) && std::isnan(spectrum.largest));
    EXPECT_TRUE(std::isnan(spectrum.largest_safe_rate()));
    EXPECT_TRUE(std::isnan(spectrum.condition_number()));
  }
}

TEST_P(EveryMethod, ExceptionsOfTheProductPassThrough) {
  int64_t calls = 0;
  const auto matrix = [&](const Tensor& v) {
    if (++calls == 20) throw std::runtime_error("the user's own");
    return v * at::linspace(1, 2, 100, at::kDouble);
  };
  EXPECT_THAT([&] { extreme_eigenvalues(matrix, 100, at::kDouble, by(GetParam())); },
              ThrowsMessage<std::runtime_error>(HasSubstr("the user's own")));
}

class IterativeMethod : public ::testing::TestWithParam<Method> {};
INSTANTIATE_TEST_SUITE_P(Spectrum, IterativeMethod, ::testing::Values(Method::spectra, Method::lanczos));

TEST_P(IterativeMethod, OutOfProductsGivesTheBestEstimateFromWithin) {
  const Tensor diagonal = at::logspace(-6, 0, 3000, 10, at::kDouble);
  const CountedProduct counted([&](const Tensor& v) { return v * diagonal; });
  for (const int64_t limit : {1, 2, 7, 30, 150, 333}) {
    SpectrumOptions options = by(GetParam());
    options.max_products = limit;
    *counted.calls = 0;
    const Spectrum spectrum = extreme_eigenvalues(counted, 3000, at::kDouble, options);
    EXPECT_EQ(spectrum.status, Status::max_iterations) << limit;
    EXPECT_EQ(spectrum.products, limit);
    EXPECT_EQ(*counted.calls, limit);
    EXPECT_GE(spectrum.smallest, 1e-6 - 1e-12);
    EXPECT_LE(spectrum.largest, 1 + 1e-12);
    EXPECT_LE(spectrum.smallest, spectrum.largest);
    if (limit >= 30) {
      EXPECT_NEAR(spectrum.largest, 1, 1e-2) << limit;
      EXPECT_LT(spectrum.smallest, 1e-2) << limit;
    }
  }
}

TEST_P(IterativeMethod, IsTheSameEveryTimeAndTheSeedHardlyMatters) {
  const Tensor diagonal = at::cat({vector_of({-2}), at::linspace(0, 1, 500, at::kDouble), vector_of({4})});
  const auto run = [&](uint64_t seed) {
    SpectrumOptions options = by(GetParam());
    options.seed = seed;
    return extreme_eigenvalues([&](const Tensor& v) { return v * diagonal; }, 502, at::kDouble, options);
  };
  EXPECT_EQ(run(3).smallest, run(3).smallest);
  EXPECT_EQ(run(3).products, run(3).products);
  EXPECT_NEAR(run(3).smallest, run(4).smallest, 1e-10);
  EXPECT_NEAR(run(3).largest, run(4).largest, 1e-10);
}

TEST_P(IterativeMethod, RestartsReachTheEndsOfALargeMatrix) {
  const Tensor diagonal =
      at::linspace(0.01, 1, 3000, at::kDouble);  // needs far more steps than the basis holds
  const Spectrum spectrum =
      extreme_eigenvalues([&](const Tensor& v) { return v * diagonal; }, 3000, at::kDouble, by(GetParam()));
  EXPECT_GT(spectrum.products, 150);
  EXPECT_NEAR(spectrum.smallest / 0.01, 1, 1e-5);
  EXPECT_NEAR(spectrum.largest, 1, 1e-7);
  if (GetParam() == Method::lanczos) {
    EXPECT_EQ(spectrum.status, Status::converged);
    EXPECT_NEAR(spectrum.smallest / 0.01, 1, 1e-8);
  }
}

TEST_P(IterativeMethod, ConvergesOnALargeSingularMatrix) {
  // A residual relative to the eigenvalue zero is never small enough.
  const Tensor diagonal = at::cat({at::zeros({1000}, at::kDouble), at::linspace(0.1, 3, 1000, at::kDouble)});
  const Spectrum spectrum =
      extreme_eigenvalues([&](const Tensor& v) { return v * diagonal; }, 2000, at::kDouble, by(GetParam()));
  EXPECT_EQ(spectrum.status, Status::converged);
  EXPECT_NEAR(spectrum.smallest, 0, 1e-11);
  EXPECT_NEAR(spectrum.largest, 3, 1e-8);
  EXPECT_FALSE(spectrum.has_negative_curvature());
  EXPECT_EQ(spectrum.condition_number(), matrices::infinity);
}

TEST(Spectrum, ChoosesTheMethod) {
  const auto method = [](int64_t n, SpectrumOptions options) {
    const Tensor diagonal = at::linspace(1, 2, n, at::kDouble);
    return std::string(
        extreme_eigenvalues([&](const Tensor& v) { return v * diagonal; }, n, at::kDouble, options).method);
  };
  EXPECT_EQ(method(63, {}), "dense");
  EXPECT_NE(method(64, {}), "dense");
  EXPECT_EQ(method(100, by(Method::lanczos)), "lanczos");
  EXPECT_EQ(method(100, by(Method::spectra)), spectra_available() ? "spectra" : "lanczos");
  SpectrumOptions few;
  few.max_products = 20;  // fewer than the dense method's 50
  EXPECT_EQ(method(50, few), "lanczos");
}

TEST(Spectrum, FollowsTheDevice) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU here";
  const Tensor diagonal = at::linspace(-1, 3, 3000, at::TensorOptions().dtype(at::kDouble).device(at::kCUDA));
  for (const int64_t n : {40, 3000}) {
    for (const bool prefer_spectra : {false, true}) {
      SpectrumOptions options;
      options.prefer_spectra = prefer_spectra;
      const Tensor part = at::cat({diagonal.narrow(0, 0, n - 1), diagonal.narrow(0, 2999, 1)});
      const auto matrix = [&](const Tensor& v) { return v * part; };
      const Spectrum spectrum = extreme_eigenvalues(matrix, n, diagonal.options(), options);
      EXPECT_EQ(spectrum.status, Status::converged);
      EXPECT_EQ(spectrum.method, n == 40 ? "dense" : "lanczos");
      EXPECT_NEAR(spectrum.smallest, -1, 1e-8);
      EXPECT_NEAR(spectrum.largest, 3, 1e-8);
    }
  }
}

TEST(Spectrum, DenseTakesAsManyProductsAsUnknowns) {
  const Tensor a = with_eigenvalues({-2, 1, 3}, 1);
  const CountedProduct counted(a);
  const Spectrum spectrum = extreme_eigenvalues(counted, 3, a.options());
  EXPECT_EQ(*counted.calls, 3);
  EXPECT_EQ(spectrum.products, 3);
  EXPECT_NEAR(spectrum.smallest, -2, 1e-14);
  EXPECT_NEAR(spectrum.largest, 3, 1e-14);
}

TEST(Spectrum, AnswersWhatAUserAsks) {
  const auto of = [](std::vector<double> eigenvalues) {
    const Tensor diagonal = vector_of(eigenvalues);
    return extreme_eigenvalues([diagonal](const Tensor& v) { return v * diagonal; }, diagonal.numel(),
                               at::kDouble);
  };
  const Spectrum convex = of({0.5, 2, 4});
  EXPECT_DOUBLE_EQ(convex.condition_number(), 8);
  EXPECT_DOUBLE_EQ(convex.largest_safe_rate(), 0.5);
  EXPECT_DOUBLE_EQ(convex.contraction(0.25), 0.875);
  EXPECT_DOUBLE_EQ(convex.contraction(0.45), 0.8);
  EXPECT_DOUBLE_EQ(convex.contraction(0.6), 1.4);
  EXPECT_FALSE(convex.has_negative_curvature());

  const Spectrum saddle = of({-1, 2});
  EXPECT_EQ(saddle.condition_number(), matrices::infinity);
  EXPECT_DOUBLE_EQ(saddle.largest_safe_rate(), 1);
  EXPECT_DOUBLE_EQ(saddle.contraction(0.5), 1.5);
  EXPECT_TRUE(saddle.has_negative_curvature());

  EXPECT_EQ(of({-3, -1}).largest_safe_rate(), matrices::infinity);
  EXPECT_FALSE(of({-1e-17, 1}).has_negative_curvature()) << "rounding";
  EXPECT_TRUE(of({-1e-12, 1}).has_negative_curvature());
  EXPECT_EQ(of({1e-17, 1}).condition_number(), matrices::infinity) << "rounding";

  // The safe rate is really the border between falling and growing residuals.
  const Tensor diagonal = vector_of({0.5, 2, 4});
  const IndexedProduct matrix = [&](const Tensor& v, int64_t) { return v * diagonal; };
  const Tensor b = at::ones({3}, at::kDouble);
  EXPECT_EQ(neumann_series(matrix, b, {400, 0.98 * convex.largest_safe_rate()}).status, Status::ok);
  EXPECT_EQ(neumann_series(matrix, b, {400, 1.02 * convex.largest_safe_rate()}).status, Status::diverged);
}

TEST(Spectrum, MisuseNamesTheOptionItsValueAndTheBound) {
  const MatrixProduct identity = [](const Tensor& v) { return v; };
  const auto expect = [&](const SpectrumOptions& options, const std::string& text) {
    EXPECT_THAT([&] { extreme_eigenvalues(identity, 3, at::kDouble, options); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
  };
  SpectrumOptions options;
  options.max_products = 0;
  expect(options, "max_products = 0: must be at least 1");
  options = {};
  options.dense_below = -1;
  expect(options, "dense_below = -1: must be at least 0");
  options = {};
  options.relative_tolerance = -1e-3;
  expect(options, "relative_tolerance = -0.001: must be at least 0 and below 1");
  options.relative_tolerance = matrices::not_a_number;
  expect(options, "relative_tolerance = nan");
  EXPECT_THAT([&] { extreme_eigenvalues(identity, 0, at::kDouble); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("size = 0: must be at least 1")));
  EXPECT_THAT([&] { extreme_eigenvalues(identity, 3, at::kInt); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("Int must be Float or Double")));
}

TEST(Spectrum, BeginsPessimistic) {
  const Spectrum spectrum;
  EXPECT_EQ(spectrum.status, Status::not_run);
  EXPECT_EQ(spectrum.method, "not run");
}

}  // namespace
}  // namespace bilevel
