#include "bilevel/core/oracle.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bilevel/core/autograd.h"

namespace bilevel {
namespace {

// Adds to the oracle's seconds, and tells a profiler, where one listens, what is computed.
class Stopwatch {
 public:
  Stopwatch(double& total, const char* what)
      : total_(total), start_(std::chrono::steady_clock::now()), told_(at::RecordScope::USER_SCOPE) {
    if (told_.isActive()) told_.before(what);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_;
  at::RecordFunction told_;
};

void check_vector(const Tensor& t, std::string_view name) {
  if (!t.defined()) throw std::invalid_argument(fmt::format("{} is an undefined tensor", name));
  if (t.dim() != 1 || t.numel() == 0) {
    throw std::invalid_argument(
        fmt::format("{} must be a flat, non-empty vector, but has {} dimensions and {} elements: flatten it "
                    "with a Layout",
                    name, t.dim(), t.numel()));
  }
  if (t.scalar_type() != at::kDouble && t.scalar_type() != at::kFloat) {
    throw std::invalid_argument(
        fmt::format("{} must be float or double, but is {}", name, c10::toString(t.scalar_type())));
  }
}

void check_point(const Tensor& w, const Tensor& x, const Batch& batch) {
  check_vector(w, "w");
  check_vector(x, "x");
  if (w.scalar_type() != x.scalar_type() || w.device() != x.device()) {
    throw std::invalid_argument(fmt::format("w is {} on {}, but x is {} on {}: they must agree",
                                            c10::toString(w.scalar_type()), w.device().str(),
                                            c10::toString(x.scalar_type()), x.device().str()));
  }
  if (batch.is_full()) return;
  if (batch.index.numel() == 0) {
    throw std::invalid_argument(
        "the batch is empty: it needs at least one example (undefined = the full set)");
  }
  if (batch.index.dim() != 1 || batch.index.scalar_type() != at::kLong) {
    throw std::invalid_argument(fmt::format("batch.index must be a vector of int64, but is {}-dimensional {}",
                                            batch.index.dim(), c10::toString(batch.index.scalar_type())));
  }
}

// A problem's own closed form may return anything: a wrong shape or type here would surface far away.
Tensor checked_like(Tensor result, const Tensor& like, std::string_view name) {
  if (!result.defined() || !result.sizes().equals(like.sizes()) ||
      result.scalar_type() != like.scalar_type()) {
    throw std::invalid_argument(
        fmt::format("{} must return {} elements of {}, but returned {}", name, like.numel(),
                    c10::toString(like.scalar_type()),
                    result.defined() ? fmt::format("{} elements in {} dimensions of {}", result.numel(),
                                                   result.dim(), c10::toString(result.scalar_type()))
                                     : std::string("an undefined tensor")));
  }
  return result;
}

class CountedLinearization : public Linearization {
 public:
  CountedLinearization(std::unique_ptr<Linearization> base, OracleCounts& counts, int64_t samples, Tensor w,
                       Tensor x)
      : base_(std::move(base)), counts_(counts), samples_(samples), w_(std::move(w)), x_(std::move(x)) {}

  Tensor gradient() override {
    const Stopwatch watch(counts_.seconds, "oracle: gradient of g");
    count(counts_.inner_gradient);
    return checked_like(base_->gradient(), w_, "Linearization::gradient");
  }
  Tensor hessian(const Tensor& v) override {
    const Stopwatch watch(counts_.seconds, "oracle: Hessian product");
    checked_like(v, w_, "the vector of a Hessian product");
    count(counts_.hessian);
    return checked_like(base_->hessian(v), w_, "Linearization::hessian");
  }
  Tensor cross(const Tensor& v) override {
    const Stopwatch watch(counts_.seconds, "oracle: cross product");
    checked_like(v, w_, "the vector of a cross product");
    count(counts_.cross);
    return checked_like(base_->cross(v), x_, "Linearization::cross");
  }
  Tensor cross_transposed(const Tensor& u) override {
    const Stopwatch watch(counts_.seconds, "oracle: transposed cross product");
    checked_like(u, x_, "the vector of a transposed cross product");
    count(counts_.cross);
    return checked_like(base_->cross_transposed(u), w_, "Linearization::cross_transposed");
  }
  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) override {
    const Stopwatch watch(counts_.seconds, "oracle: Hessian and cross product");
    checked_like(v, w_, "the vector of a Hessian product");
    count(counts_.hessian);
    count(counts_.cross);
    auto both = base_->hessian_and_cross(v);
    return {checked_like(std::move(both.first), w_, "Linearization::hessian_and_cross"),
            checked_like(std::move(both.second), x_, "Linearization::hessian_and_cross")};
  }
  Tensor gauss_newton(const Tensor& v) override {
    const Stopwatch watch(counts_.seconds, "oracle: Gauss-Newton product");
    checked_like(v, w_, "the vector of a Gauss-Newton product");
    count(counts_.hessian);
    return checked_like(base_->gauss_newton(v), w_, "Linearization::gauss_newton");
  }

 private:
  void count(int64_t& which) {
    ++which;
    counts_.samples += samples_;
  }

  std::unique_ptr<Linearization> base_;
  OracleCounts& counts_;
  int64_t samples_;
  Tensor w_, x_;
};

// A rate per tensor becomes one per variable; a single one stays a single one.
Tensor expanded_rate(const Problem& problem, const Tensor& x) {
  const Tensor rate = problem.inner_rate(x);
  if (!rate.defined()) return {};
  if (rate.numel() == 1) return rate.reshape({1});
  const Layout* layout = problem.inner_layout();
  if (layout == nullptr || rate.numel() != static_cast<int64_t>(layout->entries().size())) {
    throw std::invalid_argument(fmt::format(
        "Problem::inner_rate returned {} rates: it must return one, or one for each of the {} entries "
        "of inner_layout()",
        rate.numel(), layout == nullptr ? 0 : layout->entries().size()));
  }
  return layout->repeat_per_entry(rate);
}

}  // namespace

OracleCounts& OracleCounts::operator+=(const OracleCounts& other) {
  inner_gradient += other.inner_gradient;
  outer_gradient += other.outer_gradient;
  hessian += other.hessian;
  cross += other.cross;
  samples += other.samples;
  seconds += other.seconds;
  return *this;
}

OracleCounts operator-(OracleCounts a, const OracleCounts& b) {
  a.inner_gradient -= b.inner_gradient;
  a.outer_gradient -= b.outer_gradient;
  a.hessian -= b.hessian;
  a.cross -= b.cross;
  a.samples -= b.samples;
  a.seconds -= b.seconds;
  return a;
}

Tensor Oracle::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) {
  const Stopwatch watch(counts_.seconds, "oracle: gradient of g");
  check_point(w, x, batch);
  ++counts_.inner_gradient;
  counts_.samples += batch.size(problem_.inner_samples());
  return checked_like(problem_.inner_gradient(w.detach(), x.detach(), batch), w, "Problem::inner_gradient");
}

Tensor Oracle::inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) {
  const Stopwatch watch(counts_.seconds, "oracle: gradient of g in x");
  check_point(w, x, batch);
  ++counts_.inner_gradient;
  counts_.samples += batch.size(problem_.inner_samples());
  return checked_like(problem_.inner_gradient_in_outer(w.detach(), x.detach(), batch), x,
                      "Problem::inner_gradient_in_outer");
}

OuterGradients Oracle::outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) {
  const Stopwatch watch(counts_.seconds, "oracle: gradients of f");
  check_point(w, x, batch);
  ++counts_.outer_gradient;
  counts_.samples += batch.size(problem_.outer_samples());
  OuterGradients result = problem_.outer_gradients(w.detach(), x.detach(), batch);
  checked_like(result.w, w, "Problem::outer_gradients, df/dw,");
  checked_like(result.x, x, "Problem::outer_gradients, df/dx,");
  return result;
}

OuterGradients Oracle::outer_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) {
  const Stopwatch watch(counts_.seconds, "oracle: gradient of f in x");
  check_point(w, x, batch);
  ++counts_.outer_gradient;
  counts_.samples += batch.size(problem_.outer_samples());
  OuterGradients result = problem_.outer_gradient_in_outer(w.detach(), x.detach(), batch);
  checked_like(result.x, x, "Problem::outer_gradient_in_outer");
  return result;
}

std::unique_ptr<Linearization> Oracle::linearize(const Tensor& w, const Tensor& x, const Batch& batch) {
  const Stopwatch watch(counts_.seconds, "oracle: linearization");
  check_point(w, x, batch);
  return std::make_unique<CountedLinearization>(problem_.linearize(w.detach(), x.detach(), batch), counts_,
                                                batch.size(problem_.inner_samples()), w, x);
}

Tensor Oracle::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  check_point(w, x, batch);
  return problem_.inner_loss(w.detach(), x.detach(), batch);
}

Tensor Oracle::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  check_point(w, x, batch);
  return problem_.outer_loss(w.detach(), x.detach(), batch);
}

Tensor Oracle::inner_rate(const Tensor& x) const {
  const Tensor rate = expanded_rate(problem_, x);
  if (rate.defined() && !at::logical_and(rate > 0, at::isfinite(rate)).all().item<bool>()) {
    throw std::invalid_argument(
        fmt::format("Problem::inner_rate returned {:g} to {:g}: a rate must be finite and above 0; "
                    "parametrise it by its logarithm",
                    rate.min().item<double>(), rate.max().item<double>()));
  }
  return rate;
}

Tensor Oracle::start_pullback(const Tensor& x, const Tensor& adjoint) const {
  return autograd::vector_jacobian([this](const Tensor& y) { return problem_.inner_start(y); }, x, adjoint);
}

Tensor Oracle::start_tangent(const Tensor& x, const Tensor& u) const {
  return autograd::jacobian_vector([this](const Tensor& y) { return problem_.inner_start(y); }, x, u);
}

Tensor Oracle::rate_pullback(const Tensor& x, const Tensor& adjoint) const {
  return autograd::vector_jacobian([this](const Tensor& y) { return expanded_rate(problem_, y); }, x,
                                   adjoint);
}

Tensor Oracle::rate_tangent(const Tensor& x, const Tensor& u) const {
  return autograd::jacobian_vector([this](const Tensor& y) { return expanded_rate(problem_, y); }, x, u);
}

}  // namespace bilevel
