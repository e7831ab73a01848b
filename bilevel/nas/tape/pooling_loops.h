// The average pool of 3 x 3, image by image. Included by fused_loops.h, under its rules.

namespace bilevel::nas::fused {
namespace {

// out[j] = in[j - 1] + in[j] + in[j + 1] for pixels of a row, zeros beyond its ends.
template <typename T>
BILEVEL_INLINE void add_neighbours(const T* in, T* out, int64_t width, int64_t channels) {
  const int64_t last = (width - 1) * channels;
  for (int64_t c = 0; c < channels; ++c) {
    out[c] = width == 1 ? in[c] : in[c] + in[channels + c];
    if (width > 1) out[last + c] = in[last - channels + c] + in[last + c];
  }
#pragma omp simd
  for (int64_t i = channels; i < last; ++i) out[i] = in[i - channels] + in[i] + in[i + channels];
}

// scratch: five rows
template <typename T>
void pool_image(const Pooling<T>& work, int64_t image, T* scratch) {
  const int64_t height = work.shape.height, width = work.shape.width, channels = work.shape.channels,
                row = width * channels;
  T *shares = scratch, *divided = scratch + row,
    *sums[3] = {divided + row, divided + 2 * row, divided + 3 * row};
  for (int64_t j = 0; j < width; ++j) {
    for (int64_t c = 0; c < channels; ++c)
      shares[j * channels + c] = share<T>(static_cast<int>(j), static_cast<int>(width));
  }
  const auto sum_row = [&](int64_t i) __attribute__((always_inline)) {
    T* sum = sums[(i + 3) % 3];
    if (i < 0 || i >= height) {
      for (int64_t k = 0; k < row; ++k) sum[k] = T(0);
      return;
    }
    const T* x = work.x + (image * height + i) * row;
    if (work.transposed) {
      const T of_row = share<T>(static_cast<int>(i), static_cast<int>(height));
#pragma omp simd
      for (int64_t k = 0; k < row; ++k) divided[k] = x[k] * (of_row * shares[k]);
      x = divided;
    }
    add_neighbours(x, sum, width, channels);
  };
  sum_row(-1);
  sum_row(0);
  for (int64_t i = 0; i < height; ++i) {
    sum_row(i + 1);
    const T *a = sums[(i + 2) % 3], *b = sums[i % 3], *c = sums[(i + 1) % 3];
    T* y = work.y + (image * height + i) * row;
    if (work.transposed) {
#pragma omp simd
      for (int64_t k = 0; k < row; ++k) y[k] = a[k] + b[k] + c[k];
    } else {
      const T of_row = share<T>(static_cast<int>(i), static_cast<int>(height));
#pragma omp simd
      for (int64_t k = 0; k < row; ++k) y[k] = (a[k] + b[k] + c[k]) * (of_row * shares[k]);
    }
  }
}

}  // namespace
}  // namespace bilevel::nas::fused
