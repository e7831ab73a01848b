#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bilevel/nas/tape/formulas.h"
#include "bilevel/nas/tape/fused.h"

namespace bilevel::nas::fused {
// Named, because the templates below are visible elsewhere and what they hold must be.
namespace cpu {

// Pixels are worked on in chunks whose number depends on the shape alone: any number of threads gives the
// same sums.
struct Chunks {
  int64_t pixels, count, length;
  explicit Chunks(const Shape& shape)
      : pixels(shape.pixels()),
        count(std::min<int64_t>(most_blocks, (pixels + 63) / 64)),
        length((pixels + count - 1) / count) {}

  template <typename Work>  // work(chunk, first pixel, end)
  void each(const Work& work) const {
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) work(i, i * length, std::min(pixels, (i + 1) * length));
    });
  }
};

// A norm's Channel of every channel, field by field.
template <typename T>
class Channels {
 public:
  Channels(const Norm<T>& norm, int channels, bool tangent) : count_(static_cast<size_t>(channels)) {
    all_.resize(8 * count_);
    for (size_t c = 0; c < count_; ++c) {
      const Channel<T> k = channel_of(norm, static_cast<int>(c), tangent);
      const T fields[8] = {k.mean, k.inverse, k.gain, k.shift, k.mean_dot, k.moment, k.gain_dot, k.shift_dot};
      for (size_t f = 0; f < 8; ++f) all_[f * count_ + c] = fields[f];
    }
  }
  Channel<T> operator[](int64_t channel) const {
    const T* at = all_.data() + channel;
    const size_t n = count_;
    return {at[0], at[n], at[2 * n], at[3 * n], at[4 * n], at[5 * n], at[6 * n], at[7 * n]};
  }

 private:
  size_t count_;
  std::vector<T> all_;
};

template <typename T>
std::vector<Channels<T>> channels_of_all(const Node<T>& node, bool tangent) {
  std::vector<Channels<T>> all;
  for (int n = 0; n < node.norms; ++n) all.emplace_back(node.norm[n], node.shape.channels, tangent);
  return all;
}

// The chunks' sums, added in order.
inline std::vector<double> add_up(const double* partial, int64_t chunks, int64_t numbers) {
  std::vector<double> totals(static_cast<size_t>(numbers), 0.0);
  for (int64_t i = 0; i < chunks; ++i) {
    for (int64_t k = 0; k < numbers; ++k) totals[static_cast<size_t>(k)] += partial[i * numbers + k];
  }
  return totals;
}

// The derivative of z at a pixel, all channels.
template <typename T>
void z_dot_of(const Norm<T>& norm, int64_t at, int64_t channels, T* out) {
  for (int64_t c = 0; c < channels; ++c) out[c] = z_dot_at(norm, at + c);
}

template <typename T>
void statistics_of(const Statistics<T>& work, int which, bool tangent) {
  const int64_t channels = work.shape.channels;
  const T *z = work.z[which], *a = work.z_dot[which], *b = work.z_dot_more[which];
  const Chunks chunks(work.shape);
  chunks.each([&](int64_t chunk, int64_t begin, int64_t end) {
    double* one = work.partial + chunk * 2 * channels;
    double* two = one + channels;
    std::fill(one, two + channels, 0.0);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t at = p * channels;
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) {
        if (tangent) {
          const T z_dot = b == nullptr ? a[at + c] : a[at + c] + b[at + c];
          one[c] += static_cast<double>(z_dot);
          two[c] += static_cast<double>(z_dot * work.inverse[which][c]) *
                    static_cast<double>(z[at + c] - work.mean[which][c]);
        } else {
          const double value = static_cast<double>(z[at + c] - z[c]);
          one[c] += value;
          two[c] += value * value;
        }
      }
    }
  });
  const std::vector<double> totals = add_up(work.partial, chunks.count, 2 * channels);
  const double n = work.shape.pixels();
  for (int64_t c = 0; c < channels; ++c) {
    const double first = totals[static_cast<size_t>(c)] / n,
                 second = totals[static_cast<size_t>(channels + c)] / n;
    if (tangent) {
      work.mean_dot[which][c] = static_cast<T>(first);
      work.moment[which][c] = static_cast<T>(second);
    } else {
      work.mean[which][c] = static_cast<T>(static_cast<double>(z[c]) + first);
      work.inverse[which][c] =
          static_cast<T>(1 / std::sqrt(std::max(second - first * first, 0.0) + work.epsilon));
    }
  }
}

template <typename T>
void gather_pixel(const Sources<T>& s, const Shape& shape, int64_t pixel, bool tangent, T* out) {
  const int64_t channels = shape.channels, at = pixel * channels;
  std::fill(out, out + channels, T(0));
  for (int n = 0; n < s.rectifieds; ++n) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      out[c] += s.feature[at + c] > T(0) ? s.rectified[n][at + c] : T(0);
    }
  }
  for (int n = 0; n < s.directs; ++n) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) out[c] += s.direct[n][at + c];
  }
  for (int n = 0; n < s.weighted; ++n) {
    const auto& w = s.weight[n];
    const T gain = number_or(w.gain, T(1));
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) out[c] += gain * w.adjoint[at + c];
    if (!tangent || w.gain_dot == nullptr) continue;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) out[c] += *w.gain_dot * w.adjoint_before[at + c];
  }
}

}  // namespace cpu

using namespace cpu;

template <typename T>
void statistics(const Statistics<T>& work, bool tangent, Cpu) {
  for (int which = 0; which < work.tensors; ++which) statistics_of(work, which, tangent);
}

template <typename T>
void mix(const Mixing<T>& work, bool tangent, Cpu) {
  const Node<T>& node = work.node;
  const int64_t channels = node.shape.channels;
  const std::vector<Channels<T>> all = channels_of_all(node, tangent);
  Chunks(node.shape).each([&](int64_t, int64_t begin, int64_t end) {
    std::vector<T> z_dot(static_cast<size_t>(channels));
    for (int64_t p = begin; p < end; ++p) {
      T* y = work.y + p * channels;
      std::fill(y, y + channels, T(0));
      for (int n = 0; n < node.norms; ++n) {
        const Norm<T>& norm = node.norm[n];
        const Channels<T>& k = all[static_cast<size_t>(n)];
        const T* z = norm.z + p * norm.pitch;
        if (tangent) {
          z_dot_of(norm, p * norm.pitch, channels, z_dot.data());
          const T* dot = z_dot.data();
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) {
            const T h = k[c].normed(z[c]);
            y[c] += k[c].gain * k[c].normed_dot(h, dot[c]) + (k[c].gain_dot * h + k[c].shift_dot);
          }
        } else {
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) y[c] += k[c].gain * k[c].normed(z[c]) + k[c].shift;
        }
      }
      for (int n = 0; n < node.plains; ++n) {
        const Plain<T>& plain = node.plain[n];
        const T gain = number_or(plain.gain, T(1));
        const T* x = (tangent ? plain.x_dot : plain.x) + p * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) y[c] += gain * x[c];
        if (!tangent || plain.gain_dot == nullptr) continue;
        const T* before = plain.x + p * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) y[c] += *plain.gain_dot * before[c];
      }
      if (work.rectified == nullptr) continue;
      const T* value = tangent ? work.value + p * channels : y;
      T* rectified = work.rectified + p * channels;
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) rectified[c] = value[c] > T(0) ? y[c] : T(0);
    }
  });
}

template <typename T>
void gather(const Gathering<T>& work, bool tangent, Cpu) {
  const Node<T>& node = work.node;
  const int64_t channels = node.shape.channels, rows = 1 + node.norms + node.plains;
  const bool sums = work.sums.partial != nullptr;
  const std::vector<Channels<T>> all = channels_of_all(node, tangent);
  const Chunks chunks(node.shape);
  chunks.each([&](int64_t chunk, int64_t begin, int64_t end) {
    std::vector<T> z_dot(static_cast<size_t>(channels));
    double* partial = sums ? work.sums.partial + chunk * rows * channels : nullptr;
    if (sums) std::fill(partial, partial + rows * channels, 0.0);
    for (int64_t p = begin; p < end; ++p) {
      T* a = work.adjoint + p * channels;
      gather_pixel(work.sources, node.shape, p, tangent, a);
      if (!sums) continue;
      const T* before = tangent ? work.adjoint_before + p * channels : a;
      double* row = partial;
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) row[c] += static_cast<double>(a[c]);
      for (int n = 0; n < node.norms; ++n) {
        const Norm<T>& norm = node.norm[n];
        const Channels<T>& k = all[static_cast<size_t>(n)];
        const T* z = norm.z + p * norm.pitch;
        row += channels;
        if (tangent) {
          z_dot_of(norm, p * norm.pitch, channels, z_dot.data());
          const T* dot = z_dot.data();
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) {
            const T h = k[c].normed(z[c]);
            row[c] += static_cast<double>(a[c] * h + before[c] * k[c].normed_dot(h, dot[c]));
          }
        } else {
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) row[c] += static_cast<double>(a[c] * k[c].normed(z[c]));
        }
      }
      for (int n = 0; n < node.plains; ++n) {
        const T* x = node.plain[n].x + p * channels;
        row += channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) row[c] += static_cast<double>(a[c] * x[c]);
        if (!tangent) continue;
        const T* x_dot = node.plain[n].x_dot + p * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) row[c] += static_cast<double>(before[c] * x_dot[c]);
      }
    }
  });
  if (!sums) return;
  const std::vector<double> totals = add_up(work.sums.partial, chunks.count, rows * channels);
  for (size_t i = 0; i < totals.size(); ++i) work.sums.totals[i] = static_cast<T>(totals[i]);
}

template <typename T>
void spread(const Spreading<T>& work, bool tangent, Cpu) {
  const Node<T>& node = work.node;
  const int64_t channels = node.shape.channels;
  const T n = static_cast<T>(node.shape.pixels());
  const std::vector<Channels<T>> all = channels_of_all(node, tangent);
  const T *totals = tangent ? work.totals_before : work.totals, *totals_dot = work.totals;
  Chunks(node.shape).each([&](int64_t, int64_t begin, int64_t end) {
    std::vector<T> z_dot(static_cast<size_t>(channels));
    for (int64_t p = begin; p < end; ++p) {
      const T *a = (tangent ? work.adjoint_before : work.adjoint) + p * channels,
              *a_dot = work.adjoint + p * channels;
      for (int m = 0; m < node.norms; ++m) {
        const Norm<T>& norm = node.norm[m];
        const Channels<T>& k = all[static_cast<size_t>(m)];
        const T* z = norm.z + p * norm.pitch;
        T* out = norm.adjoint + p * norm.pitch;
        const T *s = totals + (1 + m) * channels, *s_dot = totals_dot + (1 + m) * channels;
        if (tangent) {
          z_dot_of(norm, p * norm.pitch, channels, z_dot.data());
          const T* dot = z_dot.data();
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) {
            const T h = k[c].normed(z[c]);
            const SpreadChannel<T> means{totals[c] / n, s[c] / n, totals_dot[c] / n, s_dot[c] / n};
            out[c] = means.adjoint_dot(k[c], h, k[c].normed_dot(h, dot[c]), a[c], a_dot[c]);
          }
        } else {
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) {
            const SpreadChannel<T> means{totals[c] / n, s[c] / n, T(0), T(0)};
            out[c] = means.adjoint(k[c], k[c].normed(z[c]), a[c]);
          }
        }
      }
    }
  });
}

template <typename T>
void pool(const Pooling<T>& work, Cpu) {
  const int64_t height = work.shape.height, width = work.shape.width, channels = work.shape.channels;
  at::parallel_for(0, work.shape.images * width, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {  // a column of an image
      const int64_t image = i / width, column = i % width,
                    first = (image * height * width + column) * channels;
      for (int64_t c = 0; c < channels; ++c) {
        const PooledColumn<T> of(work.x + first + c, work.shape, static_cast<int>(column), work.transposed);
        T above = 0, here = of.row_sum(0);
        for (int row = 0; row < height; ++row) {
          const T below = of.row_sum(row + 1);
          work.y[first + c + row * width * channels] = of.of_sums(above, here, below, row);
          above = here;
          here = below;
        }
      }
    }
  });
}

#define BILEVEL_FUSED(T)                                     \
  template void statistics(const Statistics<T>&, bool, Cpu); \
  template void mix(const Mixing<T>&, bool, Cpu);            \
  template void gather(const Gathering<T>&, bool, Cpu);      \
  template void spread(const Spreading<T>&, bool, Cpu);      \
  template void pool(const Pooling<T>&, Cpu);
BILEVEL_FUSED(float)
BILEVEL_FUSED(double)
#undef BILEVEL_FUSED

}  // namespace bilevel::nas::fused
