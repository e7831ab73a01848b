#include "bilevel/nas/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bilevel/distributed/differentiable_sum.h"
#include "bilevel/nas/batch_ranks.h"
#include "bilevel/nas/twice.h"

namespace bilevel::nas {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Images x channels x pixels, contiguous. A channel is `images` runs of `pixels` numbers.
struct Runs {
  int64_t images, channels, pixels;
  explicit Runs(const Tensor& x)
      : images(x.size(0)), channels(x.size(1)), pixels(x.numel() / (x.size(0) * x.size(1))) {}
  double count() const { return static_cast<double>(images * pixels); }

  template <typename Work>  // work(first number) for each run of the channel
  void each(int64_t channel, const Work& work) const {
    for (int64_t i = 0; i < images; ++i) work((i * channels + channel) * pixels);
  }
};

// Sums of a run in its own type, of runs in double.
template <typename T>
double sum(const T* x, int64_t n) {
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += x[i];
  return static_cast<double>(total);
}

template <typename T>
double sum_of_squares(const T* x, T mean, int64_t n) {
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += (x[i] - mean) * (x[i] - mean);
  return static_cast<double>(total);
}

// sum a, sum a (x - mean).
template <typename T>
void add_moments(const T* a, const T* x, T mean, int64_t n, double& sum_a, double& sum_ax) {
  T plain = 0, centred = 0;
#pragma omp simd reduction(+ : plain, centred)
  for (int64_t i = 0; i < n; ++i) {
    plain += a[i];
    centred += a[i] * (x[i] - mean);
  }
  sum_a += static_cast<double>(plain);
  sum_ax += static_cast<double>(centred);
}

template <typename T>
double dot(const T* a, const T* b, int64_t n) {
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += a[i] * b[i];
  return static_cast<double>(total);
}

template <typename T>
struct Statistics {
  const T *mean, *inverse;  // 1 / sqrt(variance + epsilon)
};

// What a pass needs of every channel before it can write: sums over this process's images, and over those of
// all ranks, which are the same numbers where it is alone.
template <size_t N>
using Sums = std::array<double, N>;

// apply(channel, own sums, sums of all). Alone, a channel is still in the cache when its sums are known;
// ranks add up those of all channels in one call.
template <size_t N, typename Sum, typename Apply>
void by_channels(const Runs& runs, NormSums* ranks, const Sum& sum, const Apply& apply) {
  const auto each = [&](const auto& work) {
    at::parallel_for(0, runs.channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) work(c);
    });
  };
  if (ranks == nullptr) {
    each([&](int64_t c) {
      const Sums<N> own = sum(c);
      apply(c, own, own);
    });
    return;
  }
  std::vector<Sums<N>> own(static_cast<size_t>(runs.channels)), all;
  // From the last channel to the first, so that the pass that follows finds the first ones in the cache.
  at::parallel_for(0, runs.channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = end; c-- > begin;) own[static_cast<size_t>(c)] = sum(c);
  });
  all = own;
  Tensor joined = at::from_blob(all.data(), {runs.channels * static_cast<int64_t>(N)}, at::kDouble);
  ranks->sum_(joined);
  each([&](int64_t c) { apply(c, own[static_cast<size_t>(c)], all[static_cast<size_t>(c)]); });
}

// Means and variances that were found, and over how many numbers of a channel.
template <typename T>
struct Found {
  T *mean, *inverse, *variance;  // variance may be null
  double count = 0;
};

// Ranks add up second moments, of which the square of the mean is taken off in double.
template <typename T>
void normalize(const Runs& runs, NormSums* ranks, const T* x, const T* scale, const T* shift, double epsilon,
               Found<T>& found, T* y) {
  by_channels<3>(
      runs, ranks,
      [&](int64_t c) -> Sums<3> {
        double total = 0, squares = 0;
        runs.each(c, [&](int64_t at) { total += sum(x + at, runs.pixels); });
        const T m = static_cast<T>(total / runs.count());
        runs.each(c, [&](int64_t at) { squares += sum_of_squares(x + at, m, runs.pixels); });
        if (ranks == nullptr) return {runs.count(), total, squares};
        const auto about = static_cast<double>(m);
        return {runs.count(), total, squares + about * (2 * total - runs.count() * about)};
      },
      [&](int64_t c, const Sums<3>& /*own*/, const Sums<3>& all) {
        const double n = all[0];
        const T m = static_cast<T>(all[1] / n);
        const double squares = ranks == nullptr ? all[2] : std::max(all[2] - all[1] / n * all[1], 0.0);
        const double r = 1 / std::sqrt(squares / n + epsilon);
        found.mean[c] = m;
        found.inverse[c] = static_cast<T>(r);
        if (found.variance != nullptr) found.variance[c] = static_cast<T>(squares / n);
        if (c == 0) found.count = n;
        const T factor = static_cast<T>(r * static_cast<double>(scale[c])), offset = shift[c];
        runs.each(c, [&](int64_t at) {
#pragma omp simd
          for (int64_t i = at; i < at + runs.pixels; ++i) y[i] = (x[i] - m) * factor + offset;
        });
      });
}

// With r = 1 / sqrt(variance + epsilon), h = (x - mean) r, means over the channel:
//   in x:     scale r (g - mean(g) - h mean(g h))
//   in scale: sum g h,  in shift: sum g
// Means are over the images of all ranks, n numbers; the sums in scale and shift are a rank's own part, as
// all derivatives in weights are.
template <typename T>
void gradient(const Runs& runs, NormSums* ranks, double n, const T* g, const T* x, const T* scale,
              Statistics<T> statistics, T* in_x, T* in_scale, T* in_shift) {
  by_channels<2>(
      runs, ranks,
      [&](int64_t c) -> Sums<2> {
        double sum_g = 0, sum_gx = 0;
        runs.each(c, [&](int64_t at) {
          add_moments(g + at, x + at, statistics.mean[c], runs.pixels, sum_g, sum_gx);
        });
        return {sum_g, sum_gx};
      },
      [&](int64_t c, const Sums<2>& own, const Sums<2>& all) {
        const T m = statistics.mean[c];
        const double r = static_cast<double>(statistics.inverse[c]);
        in_scale[c] = static_cast<T>(own[1] * r);
        in_shift[c] = static_cast<T>(own[0]);
        const double k = static_cast<double>(scale[c]) * r;
        const T of_g = static_cast<T>(k), of_x = static_cast<T>(-k * r * r * all[1] / n),
                offset = static_cast<T>(-k * all[0] / n);
        runs.each(c, [&](int64_t at) {
#pragma omp simd
          for (int64_t i = at; i < at + runs.pixels; ++i) {
            in_x[i] = of_g * g[i] + (of_x * (x[i] - m) + offset);
          }
        });
      });
}

// The derivative of <v, in x> + <a, in scale> + <b, in shift> as `gradient` has them, summed over ranks, on
// which a is the same. With G = mean(g h), B = mean(v h) and Q = mean(v g) - mean(v) mean(g) - B G:
//   in g:     scale r (v - mean(v) - h B) + a h + b
//   in x:     -scale r^2 (Q h + G (v - mean(v) - h B) + B (g - mean(g) - h G)) + a r (g - mean(g) - h G)
//   in scale: count r Q, of which a rank's own part has its own sums of v g, g and g h
template <typename T>
void second_gradient(const Runs& runs, NormSums* ranks, double n, const T* v, const T* a, const T* b,
                     const T* g, const T* x, const T* scale, Statistics<T> statistics, T* in_g, T* in_x,
                     T* in_scale) {
  by_channels<5>(
      runs, ranks,
      [&](int64_t c) -> Sums<5> {
        const T m = statistics.mean[c];
        double sum_g = 0, sum_gx = 0, sum_v = 0, sum_vx = 0, sum_vg = 0;
        runs.each(c, [&](int64_t at) {
          add_moments(g + at, x + at, m, runs.pixels, sum_g, sum_gx);
          add_moments(v + at, x + at, m, runs.pixels, sum_v, sum_vx);
          sum_vg += dot(v + at, g + at, runs.pixels);
        });
        return {sum_g, sum_gx, sum_v, sum_vx, sum_vg};
      },
      [&](int64_t c, const Sums<5>& own, const Sums<5>& all) {
        const T m = statistics.mean[c];
        const double r = static_cast<double>(statistics.inverse[c]);
        const auto& [sum_g, sum_gx, sum_v, sum_vx, sum_vg] = all;
        const double mean_g = sum_g / n, mean_v = sum_v / n, gh = sum_gx * r / n, vh = sum_vx * r / n;
        const double q = sum_vg / n - mean_v * mean_g - vh * gh;
        const double own_q = own[4] / n - mean_v * (own[0] / n) - vh * (own[1] * r / n);
        const double k = static_cast<double>(scale[c]) * r, ac = static_cast<double>(a[c]) * r;
        in_scale[c] = static_cast<T>(n * r * own_q);
        const T g_v = static_cast<T>(k), g_x = static_cast<T>(ac - k * r * vh),
                g_offset = static_cast<T>(static_cast<double>(b[c]) - k * mean_v);
        const T x_v = static_cast<T>(-k * r * gh), x_g = static_cast<T>(ac - k * r * vh),
                x_x = static_cast<T>((-k * r * (q - 2 * gh * vh) - ac * gh) * r),
                x_offset = static_cast<T>(k * r * (gh * mean_v + vh * mean_g) - ac * mean_g);
        runs.each(c, [&](int64_t at) {
#pragma omp simd
          for (int64_t i = at; i < at + runs.pixels; ++i) {
            const T centred = x[i] - m;
            in_g[i] = g_v * v[i] + (g_x * centred + g_offset);
            in_x[i] = x_v * v[i] + x_g * g[i] + (x_x * centred + x_offset);
          }
        });
      });
}

// Functions of a graph keep tensors and plain values: the sums are kept by their address, and outlive them.
NormSums* sums_at(int64_t address) { return reinterpret_cast<NormSums*>(address); }

class NormGradient : public Function<NormGradient> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& output, const Tensor& x,
                               const Tensor& scale, const Tensor& mean, const Tensor& inverse, double count,
                               int64_t ranks) {
    ctx->set_materialize_grads(false);
    const Tensor g = output.contiguous();
    ctx->save_for_backward({g, x, scale, mean, inverse});
    ctx->saved_data["count"] = count;
    ctx->saved_data["ranks"] = ranks;
    const Tensor in_x = at::empty_like(x), in_scale = at::empty_like(scale), in_shift = at::empty_like(scale);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch norm, gradient", [&] {
      gradient<scalar_t>(Runs(x), sums_at(ranks), count, g.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(),
                         scale.data_ptr<scalar_t>(),
                         {mean.data_ptr<scalar_t>(), inverse.data_ptr<scalar_t>()}, in_x.data_ptr<scalar_t>(),
                         in_scale.data_ptr<scalar_t>(), in_shift.data_ptr<scalar_t>());
    });
    return {in_x, in_scale, in_shift};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& incoming) {
    forbid_third_derivatives("batch norm");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &g = saved[0], &x = saved[1], &scale = saved[2], &mean = saved[3], &inverse = saved[4];
    const auto given = [](const Tensor& t, const Tensor& like) {
      return t.defined() ? t.contiguous() : at::zeros_like(like);
    };
    const Tensor v = given(incoming[0], x), a = given(incoming[1], scale), b = given(incoming[2], scale);
    const Tensor in_g = at::empty_like(x), in_x = at::empty_like(x), in_scale = at::empty_like(scale);
    const double count = ctx->saved_data["count"].toDouble();
    const int64_t ranks = ctx->saved_data["ranks"].toInt();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch norm, second gradient", [&] {
      second_gradient<scalar_t>(
          Runs(x), sums_at(ranks), count, v.data_ptr<scalar_t>(), a.data_ptr<scalar_t>(),
          b.data_ptr<scalar_t>(), g.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), scale.data_ptr<scalar_t>(),
          {mean.data_ptr<scalar_t>(), inverse.data_ptr<scalar_t>()}, in_g.data_ptr<scalar_t>(),
          in_x.data_ptr<scalar_t>(), in_scale.data_ptr<scalar_t>());
    });
    return {in_g, in_x, in_scale, {}, {}, {}, {}};
  }
};

class BatchNorm : public Function<BatchNorm> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const Tensor& scale, const Tensor& shift,
                        double epsilon, int64_t ranks, BatchMoments* seen) {
    const Tensor x = input.contiguous();
    const Tensor mean = at::empty({x.size(1)}, x.options()), inverse = at::empty_like(mean);
    const Tensor y = at::empty_like(x);
    const Tensor variance = seen != nullptr ? at::empty_like(mean) : Tensor();
    double count = 0;
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch norm", [&] {
      Found<scalar_t> found{mean.data_ptr<scalar_t>(), inverse.data_ptr<scalar_t>(),
                            seen != nullptr ? variance.data_ptr<scalar_t>() : nullptr};
      normalize<scalar_t>(Runs(x), sums_at(ranks), x.data_ptr<scalar_t>(), scale.data_ptr<scalar_t>(),
                          shift.data_ptr<scalar_t>(), epsilon, found, y.data_ptr<scalar_t>());
      count = found.count;
    });
    ctx->save_for_backward({input, scale, mean, inverse});
    ctx->saved_data["count"] = count;
    ctx->saved_data["ranks"] = ranks;
    if (seen != nullptr) *seen = {mean, variance, count};
    return y;
  }

  // What x does to mean and inverse is part of NormGradient's derivative in x.
  static variable_list backward(AutogradContext* ctx, const variable_list& incoming) {
    const variable_list saved = ctx->get_saved_variables();
    const variable_list all =
        NormGradient::apply(incoming[0], saved[0].contiguous(), saved[1], saved[2], saved[3],
                            ctx->saved_data["count"].toDouble(), ctx->saved_data["ranks"].toInt());
    return {all[0], all[1], all[2], {}, {}, {}};
  }
};

}  // namespace

bool can_normalize_batch(const Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

Tensor normalize_batch(const Tensor& x, const Tensor& scale, const Tensor& shift, double epsilon,
                       const std::shared_ptr<NormSums>& ranks, BatchMoments* seen) {
  const auto options = x.options().requires_grad(false);
  return BatchNorm::apply(x, scale.defined() ? scale.contiguous() : at::ones({x.size(1)}, options),
                          shift.defined() ? shift.contiguous() : at::zeros({x.size(1)}, options), epsilon,
                          reinterpret_cast<int64_t>(ranks.get()), seen);
}

Tensor normalize_batch_by_operations(const Tensor& x, const Tensor& scale, const Tensor& shift,
                                     double epsilon, const std::shared_ptr<NormSums>& ranks,
                                     BatchMoments* seen) {
  const std::vector<int64_t> in_channel = {0, 2, 3};
  const auto per_channel = [](const Tensor& t) { return t.view({1, -1, 1, 1}); };
  const auto sum_of_all = [&](const Tensor& own) {
    return shared_by_ranks(summed_over_ranks(own, *ranks), *ranks);
  };
  Tensor count = at::full({1}, static_cast<double>(x.numel() / x.size(1)),
                          at::TensorOptions().dtype(at::kDouble).device(x.device()));
  ranks->sum_(count);
  const double n = count.item<double>();
  const Tensor mean = sum_of_all(x.sum(in_channel)) / n, centred = x - per_channel(mean);
  const Tensor variance = sum_of_all(centred.square().sum(in_channel)) / n;
  Tensor y = centred * per_channel((variance + epsilon).rsqrt());
  if (scale.defined()) y = y * per_channel(scale);
  if (shift.defined()) y = y + per_channel(shift);
  if (seen != nullptr) *seen = {mean.detach(), variance.detach(), n};
  return y;
}

}  // namespace bilevel::nas
