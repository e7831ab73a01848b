// The loops behind fused_cpu.h. Included once by each fused_*.cpp of an instruction set, after a pragma that
// names it and a definition of BILEVEL_VECTOR_BYTES; so everything here has internal linkage, and nothing of
// the standard library is instantiated: the linker would be free to use the copy that was compiled for the
// newer processor everywhere.
//
// A block of channels fills a vector register; its pixels are walked in short runs, term by term, so that
// what a term knows of the channels stays in registers and the run in the first cache. Sums are in T over a
// run and in double over runs.

#include "bilevel/nas/tape/formulas.h"

#define BILEVEL_INLINE inline __attribute__((always_inline))

namespace bilevel::nas::fused {
namespace {

constexpr int64_t run_length = 64;

template <typename T, int lanes>
struct Vectors {
  typedef T Type __attribute__((vector_size(lanes * sizeof(T))));
};
template <typename T, int lanes>
using Vector = typename Vectors<T, lanes>::Type;

template <typename V, typename T>
BILEVEL_INLINE V load(const T* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(v));  // not aligned
  return v;
}
template <typename V, typename T>
BILEVEL_INLINE void store(T* to, const V& v) {
  __builtin_memcpy(to, &v, sizeof(v));
}
template <typename V, typename T>
BILEVEL_INLINE V all_of(T number) {
  return V{} + number;
}
// A NaN is let through, as LibTorch does.
template <typename V>
BILEVEL_INLINE V where_positive(const V& condition, const V& v) {
  return condition <= V{} ? V{} : v;
}

template <int count>
struct LaneCount {
  static constexpr int value = count;
};

// work(lanes, first channel) for blocks of channels, as wide as they can be.
template <typename T, typename Work>
BILEVEL_INLINE void each_block(int64_t channels, const Work& work) {
  constexpr int whole = BILEVEL_VECTOR_BYTES / sizeof(T);
  int64_t c = 0;
  for (; c + whole <= channels; c += whole) work(LaneCount<whole>{}, c);
  if constexpr (whole >= 4) {
    if (c + whole / 2 <= channels) {
      work(LaneCount<whole / 2>{}, c);
      c += whole / 2;
    }
  }
  if constexpr (whole >= 8) {
    if (c + whole / 4 <= channels) {
      work(LaneCount<whole / 4>{}, c);
      c += whole / 4;
    }
  }
  for (; c < channels; ++c) work(LaneCount<1>{}, c);
}

template <typename Work>  // work(first pixel, how many)
BILEVEL_INLINE void each_run(int64_t begin, int64_t end, const Work& work) {
  for (int64_t first = begin; first < end; first += run_length) {
    work(first, end - first < run_length ? end - first : run_length);
  }
}

// The sum of term(0), term(1), ...; several additions are in flight.
template <typename V, typename Term>
BILEVEL_INLINE V sum_of(int64_t count, const Term& term) {
  V s[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) s[k] += term(i + k);
  }
  for (; i < count; ++i) s[0] += term(i);
  return (s[0] + s[1]) + (s[2] + s[3]);
}

template <typename V>
BILEVEL_INLINE void add_to(double* sums, const V& v) {
  for (size_t l = 0; l < sizeof(v) / sizeof(v[0]); ++l) sums[l] += static_cast<double>(v[l]);
}

template <typename V, typename T>
BILEVEL_INLINE Channel<V> channels_of(const Norm<T>& norm, int64_t c, bool tangent) {
  const auto gain_of = [&](const T* gain) __attribute__((always_inline)) {
    return norm.gain_step == 0 ? all_of<V>(*gain) : load<V>(gain + c);
  };
  Channel<V> k{};
  k.mean = load<V>(norm.mean + c);
  k.inverse = load<V>(norm.inverse + c);
  k.gain = norm.gain == nullptr ? all_of<V>(T(1)) : gain_of(norm.gain);
  if (norm.shift != nullptr) k.shift = load<V>(norm.shift + c);
  if (!tangent) return k;
  k.mean_dot = load<V>(norm.mean_dot + c);
  k.moment = load<V>(norm.moment + c);
  if (norm.gain_dot != nullptr) k.gain_dot = gain_of(norm.gain_dot);
  if (norm.shift_dot != nullptr) k.shift_dot = load<V>(norm.shift_dot + c);
  return k;
}

// What formulas.h says of a norm is linear in what a pixel has: its coefficients, once for all pixels.
template <typename V>
struct NormLine {  // of a term's tangent: z_dot, z - mean, 1
  V of_dot, of_z, rest;
  BILEVEL_INLINE explicit NormLine(const Channel<V>& k)
      : of_dot(k.gain * k.inverse),
        of_z((k.gain_dot - of_dot * k.moment) * k.inverse),
        rest(k.shift_dot - of_dot * k.mean_dot) {}
};
template <typename V>
struct NormedLine {  // of normed_dot alone
  V of_z, rest;
  BILEVEL_INLINE explicit NormedLine(const Channel<V>& k)
      : of_z(-(k.inverse * k.inverse) * k.moment), rest(-k.inverse * k.mean_dot) {}
};
template <typename V>
struct AdjointLine {  // of the adjoint's tangent: a, a_dot, z - mean, z_dot, 1
  V of_a, of_a_dot, of_z, of_dot, rest;
  BILEVEL_INLINE AdjointLine(const Channel<V>& k, const SpreadChannel<V>& s)
      : of_a((k.gain_dot - k.gain * k.inverse * k.moment) * k.inverse),
        of_a_dot(k.gain * k.inverse),
        of_z(-k.inverse * (of_a * s.mean_1 + of_a_dot * (s.mean_1_dot - k.inverse * k.moment * s.mean_1))),
        of_dot(-of_a_dot * k.inverse * s.mean_1),
        rest(-of_a * s.mean_0 - of_a_dot * (s.mean_0_dot - k.inverse * k.mean_dot * s.mean_1)) {}
};

// A tensor's numbers in a block of channels from a pixel on; a tangent of z may be a sum of two tensors.
template <typename V, typename T>
struct Column {
  const T *first, *more;
  int64_t pitch;
  BILEVEL_INLINE Column(const T* x, int64_t pixel, int64_t pitch_, int64_t c, const T* and_more = nullptr)
      : first(x == nullptr ? x : x + pixel * pitch_ + c),
        more(and_more == nullptr ? and_more : and_more + pixel * pitch_ + c),
        pitch(pitch_) {}
  BILEVEL_INLINE V operator[](int64_t i) const { return load<V>(first + i * pitch); }
  BILEVEL_INLINE V both(int64_t i) const {
    const V v = load<V>(first + i * pitch);
    return more == nullptr ? v : v + load<V>(more + i * pitch);
  }
};

template <typename V, typename T>
BILEVEL_INLINE Column<V, T> z_of(const Norm<T>& norm, int64_t pixel, int64_t c) {
  return {norm.z, pixel, norm.pitch, c};
}
template <typename V, typename T>
BILEVEL_INLINE Column<V, T> z_dot_of(const Norm<T>& norm, int64_t pixel, int64_t c) {
  return {norm.z_dot, pixel, norm.pitch, c, norm.z_dot_more};
}

// sums: 2 x channels
template <typename T, int lanes, bool tangent>
void statistics_of(const Statistics<T>& work, int which, int64_t c, int64_t begin, int64_t end,
                   double* sums) {
  using V = Vector<T, lanes>;
  const int64_t channels = work.shape.channels;
  // Sums about some value of the channel keep their digits where the mean is large.
  const V about = tangent ? load<V>(work.mean[which] + c) : load<V>(work.z[which] + c);
  const V inverse = tangent ? load<V>(work.inverse[which] + c) : V{};
  each_run(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        const Column<V, T> z(work.z[which], first, channels, c),
            z_dot(work.z_dot[which], first, channels, c, work.z_dot_more[which]);
        V one[2] = {}, two[2] = {};
        const auto add = [&](int64_t i, int k) __attribute__((always_inline)) {
          const V centred = z[i] - about;
          if (tangent) {
            const V dot = z_dot.both(i);
            one[k] += dot;
            two[k] += dot * inverse * centred;
          } else {
            one[k] += centred;
            two[k] += centred * centred;
          }
        };
        int64_t i = 0;
        for (; i + 2 <= count; i += 2) {
          add(i, 0);
          add(i + 1, 1);
        }
        if (i < count) add(i, 0);
        add_to(sums + c, V(one[0] + one[1]));
        add_to(sums + channels + c, V(two[0] + two[1]));
      });
}

template <typename T, int lanes, bool tangent>
void mix_of(const Mixing<T>& work, int64_t c, int64_t begin, int64_t end) {
  using V = Vector<T, lanes>;
  const Node<T>& node = work.node;
  const int64_t channels = node.shape.channels;
  each_run(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        V y[run_length];
        for (int64_t i = 0; i < count; ++i) y[i] = V{};
        for (int n = 0; n < node.norms; ++n) {
          const Norm<T>& norm = node.norm[n];
          const Channel<V> k = channels_of<V>(norm, c, tangent);
          const Column<V, T> z = z_of<V>(norm, first, c);
          if (tangent) {
            const Column<V, T> z_dot = z_dot_of<V>(norm, first, c);
            const NormLine<V> line(k);
            for (int64_t i = 0; i < count; ++i) {
              y[i] += line.of_dot * z_dot.both(i) + (line.of_z * (z[i] - k.mean) + line.rest);
            }
          } else {
            const V factor = k.gain * k.inverse;
            for (int64_t i = 0; i < count; ++i) y[i] += factor * (z[i] - k.mean) + k.shift;
          }
        }
        for (int n = 0; n < node.plains; ++n) {
          const Plain<T>& plain = node.plain[n];
          const V gain = all_of<V>(number_or(plain.gain, T(1)));
          const Column<V, T> x(tangent ? plain.x_dot : plain.x, first, channels, c);
          for (int64_t i = 0; i < count; ++i) y[i] += gain * x[i];
          if (!tangent || plain.gain_dot == nullptr) continue;
          const V gain_dot = all_of<V>(*plain.gain_dot);
          const Column<V, T> before(plain.x, first, channels, c);
          for (int64_t i = 0; i < count; ++i) y[i] += gain_dot * before[i];
        }
        T* to = work.y + first * channels + c;
        for (int64_t i = 0; i < count; ++i) store(to + i * channels, y[i]);
        if (work.rectified == nullptr) return;
        to = work.rectified + first * channels + c;
        if (tangent) {
          const Column<V, T> value(work.value, first, channels, c);
          for (int64_t i = 0; i < count; ++i) store(to + i * channels, where_positive<V>(value[i], y[i]));
        } else {
          for (int64_t i = 0; i < count; ++i) store(to + i * channels, where_positive<V>(y[i], y[i]));
        }
      });
}

template <typename T, int lanes, bool tangent>
BILEVEL_INLINE void adjoints_of(const Sources<T>& s, int64_t channels, int64_t c, int64_t first,
                                int64_t count, Vector<T, lanes>* a) {
  using V = Vector<T, lanes>;
  const auto column = [&](const T* x) __attribute__((always_inline)) {
    return Column<V, T>(x, first, channels, c);
  };
  const auto add_weighted = [&](int n) __attribute__((always_inline)) {
    const auto& w = s.weight[n];
    const V gain = all_of<V>(number_or(w.gain, T(1)));
    const Column<V, T> adjoint = column(w.adjoint);
    for (int64_t i = 0; i < count; ++i) a[i] += gain * adjoint[i];
    if (!tangent || w.gain_dot == nullptr) return;
    const V gain_dot = all_of<V>(*w.gain_dot);
    const Column<V, T> before = column(w.adjoint_before);
    for (int64_t i = 0; i < count; ++i) a[i] += gain_dot * before[i];
  };
  for (int64_t i = 0; i < count; ++i) a[i] = V{};
  for (int n = 0; n < s.rectifieds; ++n) {
    const Column<V, T> x = column(s.rectified[n]);
    for (int64_t i = 0; i < count; ++i) a[i] += x[i];
  }
  for (int n = 0; n < s.rectified_weights; ++n) add_weighted(n);
  if (s.rectifies()) {
    const Column<V, T> feature = column(s.feature);
    for (int64_t i = 0; i < count; ++i) a[i] = where_positive<V>(feature[i], a[i]);
  }
  for (int n = 0; n < s.directs; ++n) {
    const Column<V, T> x = column(s.direct[n]);
    for (int64_t i = 0; i < count; ++i) a[i] += x[i];
  }
  for (int n = s.rectified_weights; n < s.weighted; ++n) add_weighted(n);
}

// sums: 1 + norms + plains rows of channels, or null
template <typename T, int lanes, bool tangent>
void gather_of(const Gathering<T>& work, int64_t c, int64_t begin, int64_t end, double* sums) {
  using V = Vector<T, lanes>;
  const Node<T>& node = work.node;
  const int64_t channels = node.shape.channels;
  each_run(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        V a[run_length];
        adjoints_of<T, lanes, tangent>(work.sources, channels, c, first, count, a);
        T* to = work.adjoint + first * channels + c;
        for (int64_t i = 0; i < count; ++i) store(to + i * channels, a[i]);
        if (sums == nullptr) return;
        const Column<V, T> before(work.adjoint_before, first, channels, c);
        double* row = sums + c;
        add_to(row, sum_of<V>(
                        count, [&](int64_t i) __attribute__((always_inline)) { return a[i]; }));
        for (int n = 0; n < node.norms; ++n) {
          const Norm<T>& norm = node.norm[n];
          const Channel<V> k = channels_of<V>(norm, c, tangent);
          const Column<V, T> z = z_of<V>(norm, first, c);
          row += channels;
          if (tangent) {
            const Column<V, T> z_dot = z_dot_of<V>(norm, first, c);
            const NormedLine<V> line(k);
            add_to(row, sum_of<V>(
                            count, [&](int64_t i) __attribute__((always_inline)) {
                              const V centred = z[i] - k.mean;
                              const V h_dot = k.inverse * z_dot.both(i) + (line.of_z * centred + line.rest);
                              return V(a[i] * (k.inverse * centred) + before[i] * h_dot);
                            }));
          } else {
            add_to(row, sum_of<V>(
                            count, [&](int64_t i)
                                       __attribute__((always_inline)) { return V(a[i] * k.normed(z[i])); }));
          }
        }
        for (int n = 0; n < node.plains; ++n) {
          const Column<V, T> x(node.plain[n].x, first, channels, c),
              x_dot(node.plain[n].x_dot, first, channels, c);
          row += channels;
          add_to(row, sum_of<V>(
                          count, [&](int64_t i) __attribute__((always_inline)) {
                            return tangent ? V(a[i] * x[i] + before[i] * x_dot[i]) : V(a[i] * x[i]);
                          }));
        }
      });
}

template <typename T, int lanes, bool tangent>
void spread_of(const Spreading<T>& work, int64_t c, int64_t begin, int64_t end) {
  using V = Vector<T, lanes>;
  const Node<T>& node = work.node;
  const int64_t channels = node.shape.channels;
  const V pixels = all_of<V>(static_cast<T>(node.shape.pixels()));
  const T* totals = tangent ? work.totals_before : work.totals;
  each_run(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        const Column<V, T> a(tangent ? work.adjoint_before : work.adjoint, first, channels, c),
            a_dot(work.adjoint, first, channels, c);
        for (int m = 0; m < node.norms; ++m) {
          const Norm<T>& norm = node.norm[m];
          const Channel<V> k = channels_of<V>(norm, c, tangent);
          const Column<V, T> z = z_of<V>(norm, first, c);
          T* out = norm.adjoint + first * norm.pitch + c;
          const int64_t row = (1 + m) * channels + c;
          SpreadChannel<V> s{};
          s.mean_0 = load<V>(totals + c) / pixels;
          s.mean_1 = load<V>(totals + row) / pixels;
          if (tangent) {
            s.mean_0_dot = load<V>(work.totals + c) / pixels;
            s.mean_1_dot = load<V>(work.totals + row) / pixels;
            const Column<V, T> z_dot = z_dot_of<V>(norm, first, c);
            const AdjointLine<V> line(k, s);
            for (int64_t i = 0; i < count; ++i) {
              const V of_features = line.of_z * (z[i] - k.mean) + (line.of_dot * z_dot.both(i) + line.rest);
              store(out + i * norm.pitch, V(line.of_a * a[i] + (line.of_a_dot * a_dot[i] + of_features)));
            }
          } else {
            const V factor = k.gain * k.inverse, of_z = -factor * k.inverse * s.mean_1,
                    rest = -factor * s.mean_0;
            for (int64_t i = 0; i < count; ++i) {
              store(out + i * norm.pitch, V(factor * a[i] + (of_z * (z[i] - k.mean) + rest)));
            }
          }
        }
      });
}

}  // namespace
}  // namespace bilevel::nas::fused

#include "bilevel/nas/tape/depthwise_loops.h"
#include "bilevel/nas/tape/pooling_loops.h"

namespace bilevel::nas::fused {
namespace {

template <typename T>
Loops<T> loops_here() {
  Loops<T> all{};
  all.statistics = [](const Statistics<T>& work, int which, bool tangent, int64_t begin, int64_t end,
                      double* sums) {
    each_block<T>(work.shape.channels, [&](auto lanes, int64_t c) {
      constexpr int l = decltype(lanes)::value;
      tangent ? statistics_of<T, l, true>(work, which, c, begin, end, sums)
              : statistics_of<T, l, false>(work, which, c, begin, end, sums);
    });
  };
  all.mix = [](const Mixing<T>& work, bool tangent, int64_t begin, int64_t end) {
    each_block<T>(work.node.shape.channels, [&](auto lanes, int64_t c) {
      constexpr int l = decltype(lanes)::value;
      tangent ? mix_of<T, l, true>(work, c, begin, end) : mix_of<T, l, false>(work, c, begin, end);
    });
  };
  all.gather = [](const Gathering<T>& work, bool tangent, int64_t begin, int64_t end, double* sums) {
    each_block<T>(work.node.shape.channels, [&](auto lanes, int64_t c) {
      constexpr int l = decltype(lanes)::value;
      tangent ? gather_of<T, l, true>(work, c, begin, end, sums)
              : gather_of<T, l, false>(work, c, begin, end, sums);
    });
  };
  all.spread = [](const Spreading<T>& work, bool tangent, int64_t begin, int64_t end) {
    each_block<T>(work.node.shape.channels, [&](auto lanes, int64_t c) {
      constexpr int l = decltype(lanes)::value;
      tangent ? spread_of<T, l, true>(work, c, begin, end) : spread_of<T, l, false>(work, c, begin, end);
    });
  };
  all.pool = pool_image<T>;
  all.depthwise = depthwise_image<T>;
  all.depthwise_in_image = depthwise_in_image_of<T>;
  all.depthwise_in_weights = depthwise_in_weights_of<T>;
  return all;
}

}  // namespace
}  // namespace bilevel::nas::fused
