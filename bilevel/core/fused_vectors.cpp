#include "bilevel/core/fused_vectors.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace bilevel::detail {
namespace {

constexpr int64_t piece = 2048;        // numbers that are summed in their own type
constexpr int64_t pieces_at_once = 8;  // less is not worth a thread

// Calls function(first, last, sums) for every piece of 0 .. size and adds up what it leaves in sums.
template <int count, class Function>
std::array<double, count> over_pieces(int64_t size, const Function& function) {
  const int64_t pieces = (size + piece - 1) / piece;
  std::vector<std::array<double, count>> sums(static_cast<size_t>(pieces));
  at::parallel_for(0, pieces, pieces_at_once, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      function(p * piece, std::min(size, (p + 1) * piece), sums[static_cast<size_t>(p)]);
    }
  });
  std::array<double, count> result{};
  if constexpr (count > 0) {
    for (const auto& sum : sums) {
      for (size_t i = 0; i < count; ++i) result[i] += sum[i];
    }
  }
  return result;
}

// function(T()) for the vectors' type.
template <class Function>
auto for_type(const Tensor& t, const Function& function) {
  return t.scalar_type() == at::kFloat ? function(float()) : function(double());
}

}  // namespace

bool fusible(std::initializer_list<std::reference_wrapper<const Tensor>> vectors) {
  const Tensor& first = *vectors.begin();
  return std::all_of(vectors.begin(), vectors.end(),
                     [&](const Tensor& t) {
                       return t.is_cpu() && t.is_contiguous() && !t.is_neg() &&
                              t.scalar_type() == first.scalar_type() && t.numel() == first.numel();
                     }) &&
         (first.scalar_type() == at::kFloat || first.scalar_type() == at::kDouble);
}

double damped_dot(const Tensor& d_vector, const Tensor& product, double damping) {
  return for_type(d_vector, [&](auto type) {
    using T = decltype(type);
    const T *d = d_vector.data_ptr<T>(), *q = product.data_ptr<T>(), shift = static_cast<T>(damping);
    return over_pieces<1>(d_vector.numel(), [&](int64_t first, int64_t last, auto& sums) {
      T dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t i = first; i < last; ++i) dot += d[i] * (q[i] + shift * d[i]);
      sums[0] = static_cast<double>(dot);
    })[0];
  });
}

double subtract_damped(Tensor& r_vector, double step, const Tensor& product, const Tensor& d_vector,
                       double damping) {
  return for_type(r_vector, [&](auto type) {
    using T = decltype(type);
    const T *d = d_vector.data_ptr<T>(), *q = product.data_ptr<T>();
    T* const r = r_vector.data_ptr<T>();
    const T shift = static_cast<T>(damping), length = static_cast<T>(step);
    return over_pieces<1>(r_vector.numel(), [&](int64_t first, int64_t last, auto& sums) {
      T square = 0;
      if (shift == 0) {  // without a reading of d
#pragma omp simd reduction(+ : square)
        for (int64_t i = first; i < last; ++i) {
          r[i] -= length * q[i];
          square += r[i] * r[i];
        }
      } else {
#pragma omp simd reduction(+ : square)
        for (int64_t i = first; i < last; ++i) {
          r[i] -= length * (q[i] + shift * d[i]);
          square += r[i] * r[i];
        }
      }
      sums[0] = static_cast<double>(square);
    })[0];
  });
}

void step_and_turn(Tensor& x_vector, double step, Tensor& d_vector, const Tensor& r_vector, double ratio) {
  for_type(x_vector, [&](auto type) {
    using T = decltype(type);
    T *const x = x_vector.data_ptr<T>(), *const d = d_vector.data_ptr<T>();
    const T* const r = r_vector.data_ptr<T>();
    const T length = static_cast<T>(step), share = static_cast<T>(ratio);
    over_pieces<0>(x_vector.numel(), [&](int64_t first, int64_t last, auto&) {
#pragma omp simd
      for (int64_t i = first; i < last; ++i) {
        x[i] += length * d[i];
        d[i] = r[i] + share * d[i];
      }
    });
  });
}

std::array<double, 2> next_term(Tensor& term_vector, const Tensor& product, double rate, Tensor& sum_vector) {
  return for_type(term_vector, [&](auto type) {
    using T = decltype(type);
    T *const term = term_vector.data_ptr<T>(), *const sum = sum_vector.data_ptr<T>();
    const T *const q = product.data_ptr<T>(), length = static_cast<T>(rate);
    return over_pieces<2>(term_vector.numel(), [&](int64_t first, int64_t last, auto& sums) {
      T dot = 0, square = 0;
#pragma omp simd reduction(+ : dot, square)
      for (int64_t i = first; i < last; ++i) {
        dot += term[i] * q[i];
        term[i] -= length * q[i];
        sum[i] += term[i];
        square += term[i] * term[i];
      }
      sums = {static_cast<double>(dot), static_cast<double>(square)};
    });
  });
}

std::array<double, 3> next_iterate(const Tensor& b_vector, const Tensor& product, double rate,
                                   Tensor& v_vector, Tensor& r_vector) {
  return for_type(v_vector, [&](auto type) {
    using T = decltype(type);
    T *const v = v_vector.data_ptr<T>(), *const r = r_vector.data_ptr<T>();
    const T *const b = b_vector.data_ptr<T>(), *const q = product.data_ptr<T>();
    const T length = static_cast<T>(rate);
    return over_pieces<3>(v_vector.numel(), [&](int64_t first, int64_t last, auto& sums) {
      T dot = 0, square = 0, residual = 0;
#pragma omp simd reduction(+ : dot, square, residual)
      for (int64_t i = first; i < last; ++i) {
        dot += v[i] * q[i];
        square += v[i] * v[i];
        r[i] = b[i] - q[i];
        residual += r[i] * r[i];
        v[i] += length * r[i];
      }
      sums = {static_cast<double>(dot), static_cast<double>(square), static_cast<double>(residual)};
    });
  });
}

double lanczos_product(const Tensor& product, double beta, const Tensor& v_vector, Tensor& before_vector) {
  return for_type(v_vector, [&](auto type) {
    using T = decltype(type);
    T* const before = before_vector.data_ptr<T>();
    const T *const v = v_vector.data_ptr<T>(), *const q = product.data_ptr<T>(),
                   factor = static_cast<T>(beta);
    return over_pieces<1>(v_vector.numel(), [&](int64_t first, int64_t last, auto& sums) {
      T dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t i = first; i < last; ++i) {
        before[i] = q[i] - factor * before[i];
        dot += v[i] * before[i];
      }
      sums[0] = static_cast<double>(dot);
    })[0];
  });
}

double subtract_scaled(Tensor& next_vector, double alpha, const Tensor& v_vector) {
  return subtract_damped(next_vector, alpha, v_vector, v_vector, 0);
}

void turn_and_step(Tensor& before_vector, double a, const Tensor& w_vector, double b, const Tensor& v_vector,
                   double c, Tensor& x_vector, double step) {
  for_type(x_vector, [&](auto type) {
    using T = decltype(type);
    T *const before = before_vector.data_ptr<T>(), *const x = x_vector.data_ptr<T>();
    const T *const w = w_vector.data_ptr<T>(), *const v = v_vector.data_ptr<T>();
    const T of_before = static_cast<T>(a), of_w = static_cast<T>(b), of_v = static_cast<T>(c),
            length = static_cast<T>(step);
    over_pieces<0>(x_vector.numel(), [&](int64_t first, int64_t last, auto&) {
#pragma omp simd
      for (int64_t i = first; i < last; ++i) {
        before[i] = of_before * before[i] + of_w * w[i] + of_v * v[i];
        x[i] += length * before[i];
      }
    });
  });
}

}  // namespace bilevel::detail
