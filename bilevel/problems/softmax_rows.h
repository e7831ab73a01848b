// What is done to an example's numbers between the products: softmax, residuals, curvature. Included by
// softmax_loops.h, under its rules.

namespace {

// exp of a number that is not positive, to within an ulp or two, in operations that a compiler vectorises:
// 2^n * exp(r) with |r| <= ln(2)/2, and a Taylor polynomial long enough for the type. What would underflow
// comes out as the smallest normal number; NaN stays NaN.
BILEVEL_INLINE float exp_not_positive(float x) {
  x = x < -87.0F ? -87.0F : x;
  const float shifted = x * 1.44269504F + 12582912.0F;  // 1.5 * 2^23: the sum's last bits are n
  const float n = shifted - 12582912.0F;
  const float r = (x - n * 0.693145752F) - n * 1.42860677e-6F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  return p * __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, shifted) << 23) + 0x3f800000U);
}

BILEVEL_INLINE double exp_not_positive(double x) {
  x = x < -708.0 ? -708.0 : x;
  const double shifted = x * 1.4426950408889634 + 6755399441055744.0;  // 1.5 * 2^52
  const double n = shifted - 6755399441055744.0;
  const double r = (x - n * 0.69314718036912382) - n * 1.9082149292705877e-10;
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return p * __builtin_bit_cast(double, (__builtin_bit_cast(uint64_t, shifted) << 52) + 0x3ff0000000000000U);
}

inline float log_of(float x) { return __builtin_logf(x); }
inline double log_of(double x) { return __builtin_log(x); }

template <class T, int S>
void softmax(int64_t count, int64_t classes, int64_t runtime_stride, const int64_t* labels, T* logits,
             T* cross_entropies) {
  const int64_t stride = S == 0 ? runtime_stride : S;
  for (int64_t r = 0; r < count; ++r) {
    T* row = logits + r * stride;
    const T of_label = row[labels[r]], first = row[0];
    T largest = first;
#if !defined(__clang__)  // which warns that it cannot
#pragma omp simd reduction(max : largest)
#endif
    for (int64_t k = 0; k < stride; ++k) {
      const T logit = k < classes ? row[k] : first;  // the lanes beyond must not be the largest
      largest = logit > largest ? logit : largest;
    }
#pragma omp simd
    for (int64_t k = 0; k < stride; ++k) row[k] = k < classes ? exp_not_positive(row[k] - largest) : T(0);
    Lanes<T, tile_of<S>> sums, powers;
    sums.load(row);
    for (int64_t tile = tile_of<S>; tile < stride; tile += tile_of<S>) {
      powers.load(row + tile);
      sums.add(powers);
    }
    const T sum = sums.sum(), inverse = 1 / sum;
#pragma omp simd
    for (int64_t k = 0; k < stride; ++k) row[k] *= inverse;
    if (cross_entropies != nullptr) cross_entropies[r] = log_of(sum) + (largest - of_label);
  }
}

template <class T, int S>
void residuals_of(int64_t count, int64_t runtime_stride, const int64_t* labels, const T* weights,
                  const T* probabilities, T* residuals) {
  const int64_t stride = S == 0 ? runtime_stride : S;
  for (int64_t r = 0; r < count; ++r) {
    const T weight = weights[r];
#pragma omp simd
    for (int64_t k = 0; k < stride; ++k) residuals[r * stride + k] = weight * probabilities[r * stride + k];
    residuals[r * stride + labels[r]] -= weight;
  }
}

template <class T, int S>
void curvature(int64_t count, int64_t runtime_stride, const int64_t* labels, const T* weights,
               const T* probabilities, const T* s, T* slopes, T* curved) {
  const int64_t stride = S == 0 ? runtime_stride : S;
  for (int64_t r = 0; r < count; ++r) {
    const T* p = probabilities + r * stride;
    const T* direction = s + r * stride;
    Lanes<T, tile_of<S>> products, a, b;
    products.clear();
    for (int64_t tile = 0; tile < stride; tile += tile_of<S>) {
      a.load(p + tile);
      b.load(direction + tile);
      products.add_product(a, b);
    }
    const T mean = products.sum();
    if (slopes != nullptr) slopes[r] = mean - direction[labels[r]];
    if (curved == nullptr) continue;
    const T weight = weights[r];
    T* to = curved + r * stride;
#pragma omp simd
    for (int64_t k = 0; k < stride; ++k) to[k] = weight * p[k] * (direction[k] - mean);
  }
}

}  // namespace
