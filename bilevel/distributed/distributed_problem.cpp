#include "bilevel/distributed/distributed_problem.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/distributed/differentiable_sum.h"

namespace bilevel {
namespace {

// What a rank adds to a sum: its part, weighted, or zeros of the right size.
Tensor weighted_part(const Tensor& part, double weight) { return (part.detach() * weight).contiguous(); }

class SlicedLinearization : public Linearization {
 public:
  // `base` is null where the slice is empty.
  SlicedLinearization(std::unique_ptr<Linearization> base, double weight, Tensor w, Tensor x,
                      ProcessGroup& group)
      : base_(std::move(base)), weight_(weight), w_(std::move(w)), x_(std::move(x)), group_(group) {}

  Tensor gradient() override {
    return sum([&] { return base_->gradient(); }, w_);
  }
  Tensor hessian(const Tensor& v) override {
    return sum([&] { return base_->hessian(v); }, w_);
  }
  Tensor cross(const Tensor& v) override {
    return sum([&] { return base_->cross(v); }, x_);
  }
  Tensor cross_transposed(const Tensor& u) override {
    return sum([&] { return base_->cross_transposed(u); }, w_);
  }
  std::pair<Tensor, Tensor> hessian_and_cross(const Tensor& v) override {
    Tensor h = at::zeros_like(w_), c = at::zeros_like(x_);
    if (base_) {
      const auto both = base_->hessian_and_cross(v);
      h = weighted_part(both.first, weight_);
      c = weighted_part(both.second, weight_);
    }
    group_.sum_({&h, &c});
    return {h, c};
  }
  Tensor gauss_newton(const Tensor& v) override {
    return sum([&] { return base_->gauss_newton(v); }, w_);
  }

 private:
  template <typename Part>
  Tensor sum(const Part& part, const Tensor& like) {
    Tensor result = base_ ? weighted_part(part(), weight_) : at::zeros_like(like);
    group_.sum_(result);
    return result;
  }

  std::unique_ptr<Linearization> base_;
  double weight_;
  Tensor w_, x_;
  ProcessGroup& group_;
};

}  // namespace

DistributedProblem::DistributedProblem(const Problem& base, std::shared_ptr<ProcessGroup> group,
                                       Division division)
    : base_(base),
      group_(std::move(group)),
      graph_sums_(std::make_unique<GroupSum>(*group_)),
      division_(division) {}

RankSlice DistributedProblem::own_part(const Batch& batch, int64_t population) const {
  if (division_ == Division::by_problem || group_->size() == 1) return {batch, 0, batch.size(population), 1};
  return slice_of(batch, population, group_->rank(), group_->size());
}
bool DistributedProblem::is_replicated(int64_t population) const {
  return population == 1 && division_ == Division::by_slices;
}

// ---- losses ----

Tensor DistributedProblem::loss(Loss which, const Tensor& w, const Tensor& x, const Batch& batch,
                                int64_t population) const {
  if (is_replicated(population)) return (base_.*which)(w, x, batch);
  const RankSlice slice = own_part(batch, population);
  if (!w.requires_grad() && !x.requires_grad()) {
    Tensor part = slice.empty() ? at::zeros({}, w.options())
                                : weighted_part((base_.*which)(w, x, slice.batch), slice.weight);
    group_->sum_(part);
    return part;
  }
  // One function for both arguments, and a term that is zero with all its derivatives: then every rank has
  // the same sums to go back through, however often, whatever its slice depends on.
  const Tensor both = shared_by_ranks(at::cat({w, x}), *graph_sums_);
  const Tensor own_w = both.narrow(0, 0, w.numel()), own_x = both.narrow(0, w.numel(), x.numel());
  const Tensor nothing = both.sin().sum() * 0;
  const Tensor part =
      slice.empty() ? nothing : (base_.*which)(own_w, own_x, slice.batch) * slice.weight + nothing;
  return summed_over_ranks(part, *graph_sums_);
}

Tensor DistributedProblem::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return loss(&Problem::inner_loss, w, x, batch, base_.inner_samples());
}
Tensor DistributedProblem::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return loss(&Problem::outer_loss, w, x, batch, base_.outer_samples());
}

void DistributedProblem::check_loss(const std::string& text, Loss which, const Tensor& w, const Tensor& x,
                                    const Batch& batch, int64_t population) const {
  const double whole = (base_.*which)(w, x, batch).item<double>();
  const double sum = loss(which, w, x, batch, population).item<double>();
  // Sums of that many terms, in two orders.
  const double rounding =
      machine_epsilon(w) * (64 + 8 * std::sqrt(static_cast<double>(batch.size(population))));
  if (std::abs(whole - sum) <= rounding * std::max({std::abs(whole), std::abs(sum), 1.0})) return;
  if (!std::isfinite(whole)) return;  // the run itself says where
  throw std::invalid_argument(fmt::format(
      "{} of {} examples is {:.17g}, but what {} ranks compute of it sums to {:.17g}: it is no mean over "
      "examples "
      "plus a regulariser, or it draws from the batch's seed, and cannot be divided; run it with one process",
      text, batch.size(population), whole, group_->size(), sum));
}

void DistributedProblem::check(const std::string& name, const Tensor& w, const Tensor& x) const {
  for (const auto& [level, which, population] :
       {std::tuple{"inner", Loss(&Problem::inner_loss), base_.inner_samples()},
        std::tuple{"outer", Loss(&Problem::outer_loss), base_.outer_samples()}}) {
    if (is_replicated(population)) continue;
    const std::string text = fmt::format("{}: its {} loss", name, level);
    check_loss(text, which, w, x, {}, population);
    // Uneven slices, in another order.
    const int64_t few = std::min<int64_t>(population, 2 * group_->size() + 1);
    Batch batch;
    batch.index = at::arange(population - 1, population - 1 - few, -1, at::TensorOptions().dtype(at::kLong));
    batch.seed = 1;
    check_loss(text, which, w, x, batch, population);
  }
}

// ---- derivatives ----

Tensor DistributedProblem::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  if (is_replicated(base_.inner_samples())) return base_.inner_gradient(w, x, batch);
  const RankSlice slice = own_part(batch, base_.inner_samples());
  Tensor part = slice.empty() ? at::zeros_like(w)
                              : weighted_part(base_.inner_gradient(w, x, slice.batch), slice.weight);
  group_->sum_(part);
  return part;
}

Tensor DistributedProblem::inner_gradient_in_outer(const Tensor& w, const Tensor& x,
                                                   const Batch& batch) const {
  if (is_replicated(base_.inner_samples())) return base_.inner_gradient_in_outer(w, x, batch);
  const RankSlice slice = own_part(batch, base_.inner_samples());
  Tensor part = slice.empty() ? at::zeros_like(x)
                              : weighted_part(base_.inner_gradient_in_outer(w, x, slice.batch), slice.weight);
  group_->sum_(part);
  return part;
}

OuterGradients DistributedProblem::outer_gradients(const Tensor& w, const Tensor& x,
                                                   const Batch& batch) const {
  if (is_replicated(base_.outer_samples())) return base_.outer_gradients(w, x, batch);
  const RankSlice slice = own_part(batch, base_.outer_samples());
  OuterGradients part;
  if (slice.empty()) {
    part = {.loss = at::zeros({}, w.options()), .w = at::zeros_like(w), .x = at::zeros_like(x)};
  } else {
    part = base_.outer_gradients(w, x, slice.batch);
    for (Tensor* one : {&part.loss, &part.w, &part.x}) *one = weighted_part(*one, slice.weight);
  }
  group_->sum_({&part.loss, &part.w, &part.x});
  return part;
}

OuterGradients DistributedProblem::outer_gradient_in_outer(const Tensor& w, const Tensor& x,
                                                           const Batch& batch) const {
  if (is_replicated(base_.outer_samples())) return base_.outer_gradient_in_outer(w, x, batch);
  const RankSlice slice = own_part(batch, base_.outer_samples());
  OuterGradients part{.loss = at::zeros({}, w.options()), .w = {}, .x = at::zeros_like(x)};
  if (!slice.empty()) {
    const OuterGradients own = base_.outer_gradient_in_outer(w, x, slice.batch);
    part.loss = weighted_part(own.loss, slice.weight);
    part.x = weighted_part(own.x, slice.weight);
  }
  group_->sum_({&part.loss, &part.x});
  return part;
}

std::unique_ptr<Linearization> DistributedProblem::linearize(const Tensor& w, const Tensor& x,
                                                             const Batch& batch) const {
  if (is_replicated(base_.inner_samples())) return base_.linearize(w, x, batch);
  const RankSlice slice = own_part(batch, base_.inner_samples());
  return std::make_unique<SlicedLinearization>(slice.empty() ? nullptr : base_.linearize(w, x, slice.batch),
                                               slice.weight, w, x, *group_);
}

// ---- the same on every rank ----

Tensor DistributedProblem::initial_inner(uint64_t seed) const { return base_.initial_inner(seed); }
Tensor DistributedProblem::initial_outer(uint64_t seed) const { return base_.initial_outer(seed); }
int64_t DistributedProblem::inner_samples() const { return base_.inner_samples(); }
int64_t DistributedProblem::outer_samples() const { return base_.outer_samples(); }
std::optional<InnerParts> DistributedProblem::inner_parts(const Tensor& w, const Tensor& x,
                                                          const Batch& batch) const {
  return base_.inner_parts(w, x, batch);
}
Tensor DistributedProblem::inner_start(const Tensor& x) const { return base_.inner_start(x); }
Tensor DistributedProblem::inner_rate(const Tensor& x) const { return base_.inner_rate(x); }
const Layout* DistributedProblem::inner_layout() const { return base_.inner_layout(); }
bool DistributedProblem::inner_loss_uses_outer() const { return base_.inner_loss_uses_outer(); }
std::optional<LossConstants> DistributedProblem::loss_constants(const Tensor& x) const {
  return base_.loss_constants(x);
}
// A bound gamma_k S on a sum of k terms becomes at most gamma_(k + p + 4) S: each part is weighted by a
// rounded number, and p of them are added. With k at least 1 that is not more than p + 5 times as much.
std::optional<EvaluationErrors> DistributedProblem::evaluation_errors(const Tensor& w,
                                                                      const Tensor& x) const {
  std::optional<EvaluationErrors> errors = evaluation_errors_of(base_, w, x);
  if (errors) {
    const double factor = group_->size() > 1 ? group_->size() + 5 : 1;
    for (double* error :
         {&errors->gradient, &errors->outer_w, &errors->outer_x, &errors->hessian, &errors->cross}) {
      *error *= factor;
    }
  }
  return errors;
}
void DistributedProblem::project_outer_(Tensor& x) const { base_.project_outer_(x); }
std::map<std::string, double> DistributedProblem::metrics(const Tensor& w, const Tensor& x) const {
  return base_.metrics(w, x);
}

}  // namespace bilevel
