#include "bilevel/nas/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <cstdint>

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

template <typename T>
void normalize(const Runs& runs, const T* x, const T* scale, const T* shift, double epsilon, T* mean,
               T* inverse, T* y) {
  at::parallel_for(0, runs.channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double total = 0, squares = 0;
      runs.each(c, [&](int64_t at) { total += sum(x + at, runs.pixels); });
      const T m = static_cast<T>(total / runs.count());
      runs.each(c, [&](int64_t at) { squares += sum_of_squares(x + at, m, runs.pixels); });
      const double r = 1 / std::sqrt(squares / runs.count() + epsilon);
      mean[c] = m;
      inverse[c] = static_cast<T>(r);
      const T factor = static_cast<T>(r * static_cast<double>(scale[c])), offset = shift[c];
      runs.each(c, [&](int64_t at) {
#pragma omp simd
        for (int64_t i = at; i < at + runs.pixels; ++i) y[i] = (x[i] - m) * factor + offset;
      });
    }
  });
}

// With r = 1 / sqrt(variance + epsilon), h = (x - mean) r, means over the channel:
//   in x:     scale r (g - mean(g) - h mean(g h))
//   in scale: sum g h,  in shift: sum g
template <typename T>
void gradient(const Runs& runs, const T* g, const T* x, const T* scale, Statistics<T> statistics, T* in_x,
              T* in_scale, T* in_shift) {
  at::parallel_for(0, runs.channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const T m = statistics.mean[c];
      const double r = static_cast<double>(statistics.inverse[c]), n = runs.count();
      double sum_g = 0, sum_gx = 0;
      runs.each(c, [&](int64_t at) { add_moments(g + at, x + at, m, runs.pixels, sum_g, sum_gx); });
      in_scale[c] = static_cast<T>(sum_gx * r);
      in_shift[c] = static_cast<T>(sum_g);
      const double k = static_cast<double>(scale[c]) * r;
      const T of_g = static_cast<T>(k), of_x = static_cast<T>(-k * r * r * sum_gx / n),
              offset = static_cast<T>(-k * sum_g / n);
      runs.each(c, [&](int64_t at) {
#pragma omp simd
        for (int64_t i = at; i < at + runs.pixels; ++i) {
          in_x[i] = of_g * g[i] + (of_x * (x[i] - m) + offset);
        }
      });
    }
  });
}

// The derivative of <v, in x> + <a, in scale> + <b, in shift> as `gradient` has them. With G = mean(g h),
// B = mean(v h) and Q = mean(v g) - mean(v) mean(g) - B G:
//   in g:     scale r (v - mean(v) - h B) + a h + b
//   in x:     -scale r^2 (Q h + G (v - mean(v) - h B) + B (g - mean(g) - h G)) + a r (g - mean(g) - h G)
//   in scale: count r Q
template <typename T>
void second_gradient(const Runs& runs, const T* v, const T* a, const T* b, const T* g, const T* x,
                     const T* scale, Statistics<T> statistics, T* in_g, T* in_x, T* in_scale) {
  at::parallel_for(0, runs.channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const T m = statistics.mean[c];
      const double r = static_cast<double>(statistics.inverse[c]), n = runs.count();
      double sum_g = 0, sum_gx = 0, sum_v = 0, sum_vx = 0, sum_vg = 0;
      runs.each(c, [&](int64_t at) {
        add_moments(g + at, x + at, m, runs.pixels, sum_g, sum_gx);
        add_moments(v + at, x + at, m, runs.pixels, sum_v, sum_vx);
        sum_vg += dot(v + at, g + at, runs.pixels);
      });
      const double mean_g = sum_g / n, mean_v = sum_v / n, gh = sum_gx * r / n, vh = sum_vx * r / n;
      const double q = sum_vg / n - mean_v * mean_g - vh * gh;
      const double k = static_cast<double>(scale[c]) * r, ac = static_cast<double>(a[c]) * r;
      in_scale[c] = static_cast<T>(n * r * q);
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
    }
  });
}

class NormGradient : public Function<NormGradient> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& output, const Tensor& x,
                               const Tensor& scale, const Tensor& mean, const Tensor& inverse) {
    ctx->set_materialize_grads(false);
    const Tensor g = output.contiguous();
    ctx->save_for_backward({g, x, scale, mean, inverse});
    const Tensor in_x = at::empty_like(x), in_scale = at::empty_like(scale), in_shift = at::empty_like(scale);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch norm, gradient", [&] {
      gradient<scalar_t>(Runs(x), g.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), scale.data_ptr<scalar_t>(),
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
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch norm, second gradient", [&] {
      second_gradient<scalar_t>(
          Runs(x), v.data_ptr<scalar_t>(), a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(),
          g.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), scale.data_ptr<scalar_t>(),
          {mean.data_ptr<scalar_t>(), inverse.data_ptr<scalar_t>()}, in_g.data_ptr<scalar_t>(),
          in_x.data_ptr<scalar_t>(), in_scale.data_ptr<scalar_t>());
    });
    return {in_g, in_x, in_scale, {}, {}};
  }
};

class BatchNorm : public Function<BatchNorm> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const Tensor& scale, const Tensor& shift,
                        double epsilon) {
    const Tensor x = input.contiguous();
    const Tensor mean = at::empty({x.size(1)}, x.options()), inverse = at::empty_like(mean);
    const Tensor y = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch norm", [&] {
      normalize<scalar_t>(Runs(x), x.data_ptr<scalar_t>(), scale.data_ptr<scalar_t>(),
                          shift.data_ptr<scalar_t>(), epsilon, mean.data_ptr<scalar_t>(),
                          inverse.data_ptr<scalar_t>(), y.data_ptr<scalar_t>());
    });
    ctx->save_for_backward({input, scale, mean, inverse});
    return y;
  }

  // What x does to mean and inverse is part of NormGradient's derivative in x.
  static variable_list backward(AutogradContext* ctx, const variable_list& incoming) {
    const variable_list saved = ctx->get_saved_variables();
    const variable_list all =
        NormGradient::apply(incoming[0], saved[0].contiguous(), saved[1], saved[2], saved[3]);
    return {all[0], all[1], all[2], {}};
  }
};

}  // namespace

bool can_normalize_batch(const Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

Tensor normalize_batch(const Tensor& x, const Tensor& scale, const Tensor& shift, double epsilon) {
  const auto options = x.options().requires_grad(false);
  return BatchNorm::apply(x, scale.defined() ? scale.contiguous() : at::ones({x.size(1)}, options),
                          shift.defined() ? shift.contiguous() : at::zeros({x.size(1)}, options), epsilon);
}

}  // namespace bilevel::nas
