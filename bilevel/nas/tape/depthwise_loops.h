// Convolutions of each channel on its own, image by image. Included by fused_loops.h, under its rules.

namespace bilevel::nas::fused {
namespace {

// A convolution along one axis.
struct Axis {
  int64_t in, out, kernel, stride, padding, dilation;
  BILEVEL_INLINE int64_t input(int64_t o, int64_t tap) const { return o * stride - padding + tap * dilation; }
  // The taps of output o that meet the input: first .. end.
  BILEVEL_INLINE int64_t first_tap(int64_t o) const {
    const int64_t before = padding - o * stride;
    return before <= 0 ? 0 : (before + dilation - 1) / dilation;
  }
  BILEVEL_INLINE int64_t end_tap(int64_t o) const {
    const int64_t room = in - 1 + padding - o * stride;
    if (room < 0) return 0;
    const int64_t end = room / dilation + 1;
    return end < kernel ? end : kernel;
  }
  // Outputs all of whose taps meet the input: first .. end.
  BILEVEL_INLINE int64_t first_whole() const {
    const int64_t first = (padding + stride - 1) / stride;
    return first < out ? first : out;
  }
  BILEVEL_INLINE int64_t end_whole() const {
    const int64_t room = in - 1 + padding - (kernel - 1) * dilation;
    const int64_t end = room < 0 ? 0 : room / stride + 1, first = first_whole();
    return end < first ? first : end < out ? end : out;
  }
};

// Images and weights of a sum of convolutions, in a block of channels of one image.
template <typename V, typename T, int kernel>
struct Taps {
  int pairs;
  const T* x[2];
  int64_t pitch;
  V tap[2][kernel * kernel];
};

// out = (add ? out : 0) + sum over pairs.
template <typename T, int lanes, int kernel>
void correlate(const Taps<Vector<T, lanes>, T, kernel>& taps, const Axis& down, const Axis& across, bool add,
               T* out, int64_t out_pitch) {
  using V = Vector<T, lanes>;
  constexpr int64_t at_once = 4;
  for (int64_t oh = 0; oh < down.out; ++oh) {
    const int64_t first_row = down.first_tap(oh), end_row = down.end_tap(oh);
    T* row = out + oh * across.out * out_pitch;
    const auto one = [&](int64_t ow) {
      V sum = add ? load<V>(row + ow * out_pitch) : V{};
      const int64_t first = across.first_tap(ow), end = across.end_tap(ow);
      for (int p = 0; p < taps.pairs; ++p) {
        for (int64_t i = first_row; i < end_row; ++i) {
          const T* x = taps.x[p] + (down.input(oh, i) * across.in + across.input(ow, 0)) * taps.pitch;
          for (int64_t j = first; j < end; ++j) {
            sum += load<V>(x + j * across.dilation * taps.pitch) * taps.tap[p][i * kernel + j];
          }
        }
      }
      store(row + ow * out_pitch, sum);
    };
    const int64_t first = across.first_whole(), end = across.end_whole();
    int64_t ow = 0;
    for (; ow < first; ++ow) one(ow);
    for (; ow + at_once <= end; ow += at_once) {
      V sum[at_once];
#pragma GCC unroll 4
      for (int64_t k = 0; k < at_once; ++k) sum[k] = add ? load<V>(row + (ow + k) * out_pitch) : V{};
      for (int p = 0; p < taps.pairs; ++p) {
        for (int64_t i = first_row; i < end_row; ++i) {
          const T* x = taps.x[p] + (down.input(oh, i) * across.in + across.input(ow, 0)) * taps.pitch;
#pragma GCC unroll 5
          for (int64_t j = 0; j < kernel; ++j) {
            const V tap = taps.tap[p][i * kernel + j];
#pragma GCC unroll 4
            for (int64_t k = 0; k < at_once; ++k) {
              sum[k] += load<V>(x + (j * across.dilation + k * across.stride) * taps.pitch) * tap;
            }
          }
        }
      }
#pragma GCC unroll 4
      for (int64_t k = 0; k < at_once; ++k) store(row + (ow + k) * out_pitch, sum[k]);
    }
    for (; ow < across.out; ++ow) one(ow);
  }
}

template <typename T>
BILEVEL_INLINE Axis down_of(const Depthwise<T>& w) {
  return {w.image.height, w.height, w.kernel, w.stride, w.padding, w.dilation};
}
template <typename T>
BILEVEL_INLINE Axis across_of(const Depthwise<T>& w) {
  return {w.image.width, w.width, w.kernel, w.stride, w.padding, w.dilation};
}

template <typename V, typename T, int kernel>
BILEVEL_INLINE void load_taps(const Depthwise<T>& work, int64_t channel, bool flipped,
                              Taps<V, T, kernel>& taps) {
  constexpr int64_t size = kernel * kernel;
  taps.pairs = work.pairs;
  for (int p = 0; p < work.pairs; ++p) {
    for (int64_t t = 0; t < size; ++t) {
      for (int64_t l = 0; l < static_cast<int64_t>(sizeof(V) / sizeof(T)); ++l) {
        taps.tap[p][flipped ? size - 1 - t : t][l] = work.weights[p][(channel + l) * size + t];
      }
    }
  }
}

// work(lanes, channel of the image, channel of the result): a block's channels of one copy.
template <typename T, typename Work>
BILEVEL_INLINE void each_copy(const Depthwise<T>& work, const Work& what) {
  const int64_t channels = work.image.channels;
  each_block<T>(channels, [&](auto lanes, int64_t c) {
    for (int64_t o = c; o < work.outputs; o += channels) what(lanes, c, o);
  });
}

template <typename T, int kernel>
void convolve_image(const Depthwise<T>& work, int64_t image) {
  const Axis down = down_of(work), across = across_of(work);
  each_copy(work, [&](auto lanes, int64_t c, int64_t o) {
    using V = Vector<T, decltype(lanes)::value>;
    Taps<V, T, kernel> taps;
    load_taps(work, o, false, taps);
    taps.pitch = work.image.channels;
    for (int p = 0; p < work.pairs; ++p) taps.x[p] = work.x[p] + image * down.in * across.in * taps.pitch + c;
    correlate<T, decltype(lanes)::value, kernel>(
        taps, down, across, false, work.out + image * down.out * across.out * work.outputs + o, work.outputs);
  });
}

template <typename T, int kernel>
void convolve_image_back(const Depthwise<T>& work, int64_t image) {
  const Axis down = down_of(work), across = across_of(work);
  const int64_t channels = work.image.channels;
  each_copy(work, [&](auto lanes, int64_t c, int64_t o) {
    using V = Vector<T, decltype(lanes)::value>;
    Taps<V, T, kernel> taps;
    load_taps(work, o, work.stride == 1, taps);
    taps.pitch = work.outputs;
    for (int p = 0; p < work.pairs; ++p) {
      taps.x[p] = work.adjoint[p] + image * down.out * across.out * taps.pitch + o;
    }
    T* out = work.out + image * down.in * across.in * channels + c;
    const bool add = o >= channels;
    if (work.stride == 1) {  // a convolution with the taps turned round
      const auto turned = [](Axis a) {
        return Axis{a.out, a.in, a.kernel, 1, a.dilation * (a.kernel - 1) - a.padding, a.dilation};
      };
      correlate<T, decltype(lanes)::value, kernel>(taps, turned(down), turned(across), add, out, channels);
      return;
    }
    if (!add) {
      for (int64_t i = 0; i < down.in * across.in; ++i) store(out + i * channels, V{});
    }
    for (int p = 0; p < work.pairs; ++p) {
      for (int64_t oh = 0; oh < down.out; ++oh) {
        for (int64_t ow = 0; ow < across.out; ++ow) {
          const V a = load<V>(taps.x[p] + (oh * across.out + ow) * taps.pitch);
          for (int64_t i = down.first_tap(oh); i < down.end_tap(oh); ++i) {
            for (int64_t j = across.first_tap(ow); j < across.end_tap(ow); ++j) {
              T* to = out + (down.input(oh, i) * across.in + across.input(ow, j)) * channels;
              store(to, V(load<V>(to) + a * taps.tap[p][i * kernel + j]));
            }
          }
        }
      }
    }
  });
}

// sums: outputs x kernel x kernel, to which the images first .. end are added.
template <typename T, int kernel>
void convolve_weights(const Depthwise<T>& work, int64_t first_image, int64_t end_image, double* sums) {
  constexpr int64_t size = kernel * kernel;
  const Axis down = down_of(work), across = across_of(work);
  const int64_t channels = work.image.channels,
                rows_at_once = across.out < run_length ? run_length / across.out : 1;
  each_copy(work, [&](auto lanes, int64_t c, int64_t o) {
    constexpr int l = decltype(lanes)::value;
    using V = Vector<T, l>;
    Vector<double, l> total[size] = {};
    V part[size];
    for (int64_t image = first_image; image < end_image; ++image) {
      for (int64_t row = 0; row < down.out; row += rows_at_once) {
        const int64_t end_row = row + rows_at_once < down.out ? row + rows_at_once : down.out;
        for (int64_t t = 0; t < size; ++t) part[t] = V{};
        for (int p = 0; p < work.pairs; ++p) {
          for (int64_t oh = row; oh < end_row; ++oh) {
            const T* a = work.adjoint[p] + (image * down.out + oh) * across.out * work.outputs + o;
            const int64_t first = across.first_whole(), end = across.end_whole();
            for (int64_t i = down.first_tap(oh); i < down.end_tap(oh); ++i) {
              const T* x = work.x[p] + (image * down.in + down.input(oh, i)) * across.in * channels + c;
              V line[kernel];
#pragma GCC unroll 5
              for (int64_t j = 0; j < kernel; ++j) line[j] = part[i * kernel + j];
              for (int64_t ow = 0; ow < across.out; ++ow) {
                const V here = load<V>(a + ow * work.outputs);
                if (ow >= first && ow < end) {
#pragma GCC unroll 5
                  for (int64_t j = 0; j < kernel; ++j)
                    line[j] += here * load<V>(x + across.input(ow, j) * channels);
                } else {
#pragma GCC unroll 5
                  for (int64_t j = 0; j < kernel; ++j) {
                    const int64_t iw = across.input(ow, j);
                    if (iw >= 0 && iw < across.in) line[j] += here * load<V>(x + iw * channels);
                  }
                }
              }
#pragma GCC unroll 5
              for (int64_t j = 0; j < kernel; ++j) part[i * kernel + j] = line[j];
            }
          }
        }
        for (int64_t t = 0; t < size; ++t) total[t] += __builtin_convertvector(part[t], Vector<double, l>);
      }
    }
    for (int64_t t = 0; t < size; ++t) {
      for (int64_t k = 0; k < l; ++k) sums[(o + k) * size + t] += total[t][k];
    }
  });
}

template <typename T>
void depthwise_image(const Depthwise<T>& work, int64_t image) {
  work.kernel == 3 ? convolve_image<T, 3>(work, image) : convolve_image<T, 5>(work, image);
}
template <typename T>
void depthwise_in_image_of(const Depthwise<T>& work, int64_t image) {
  work.kernel == 3 ? convolve_image_back<T, 3>(work, image) : convolve_image_back<T, 5>(work, image);
}
template <typename T>
void depthwise_in_weights_of(const Depthwise<T>& work, int64_t first, int64_t end, double* sums) {
  work.kernel == 3 ? convolve_weights<T, 3>(work, first, end, sums)
                   : convolve_weights<T, 5>(work, first, end, sums);
}

}  // namespace
}  // namespace bilevel::nas::fused
