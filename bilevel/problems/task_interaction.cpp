#include "bilevel/problems/task_interaction.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/spectrum.h"
#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/softmax_loss.h"

namespace bilevel {
namespace {

// The part of 2 / rate that curvature may take: beyond it an error of the bound would be an explosion.
constexpr double stable_part = 0.9;
// The regulariser's least part of the data's curvature: smaller ones change nothing but the condition number.
constexpr double least_regularizer = 1e-6;

double inverse_softplus(double value) { return value > 30 ? value : std::log(std::expm1(value)); }
Tensor inverse_softplus(const Tensor& values) { return at::where(values > 30, values, values.expm1().log()); }

Tensor laplacian(const Tensor& interaction) { return interaction.sum(1).diag() - interaction; }

// (a_i - a_j) . (b_i - b_j) for all pairs of rows. Taken about the mean, because rows that are nearly the
// same, which strong coupling makes them, would otherwise leave rounding errors only.
Tensor pair_products(const Tensor& a, const Tensor& b) {
  const Tensor gram = (a - a.mean(0, true)).mm((b - b.mean(0, true)).t());
  const Tensor own = gram.diagonal();
  return own.unsqueeze(1) + own.unsqueeze(0) - gram - gram.t();
}

// H and C at one point. `quadratic` is the tasks x tasks matrix of the coupling and the regulariser.
class TaskLinearization : public Linearization {
 public:
  struct Parts {
    Tensor features, weights, probabilities;  // of the blocks
    Tensor gradient, quadratic;
    Tensor w, x;
    int64_t tasks;
    bool coupled;
  };
  explicit TaskLinearization(Parts parts) : p_(std::move(parts)) {}

  Tensor gradient() override { return p_.gradient; }
  Tensor hessian(const Tensor& v) override {
    const Tensor along = p_.features.bmm(v.view({p_.features.size(0), -1, p_.features.size(2)}).mT());
    const Tensor weighted = p_.probabilities * along;
    const Tensor change = (weighted - p_.probabilities * weighted.sum(2, true)) * p_.weights.unsqueeze(2);
    return change.mT().bmm(p_.features).reshape({-1}) + p_.quadratic.mm(rows(v)).view({-1});
  }
  Tensor gauss_newton(const Tensor& v) override { return hessian(v); }  // the model is linear in w
  Tensor cross(const Tensor& v) override {
    const Tensor slope = p_.x.sigmoid();
    const Tensor in_rho = 2 * slope[-1] * p_.w.dot(v);
    if (!p_.coupled) return in_rho.view({1});
    const Tensor in_coupling = 4 * slope.slice(0, 0, -1) * pair_products(rows(p_.w), rows(v)).view({-1});
    return at::cat({in_coupling, in_rho.view({1})});
  }
  Tensor cross_transposed(const Tensor& u) override {
    const Tensor change = u * p_.x.sigmoid();
    Tensor result = 2 * change[-1] * p_.w;
    if (p_.coupled) {
      const Tensor in_a = change.slice(0, 0, -1).view({p_.tasks, p_.tasks});
      result = result + 4 * laplacian(in_a + in_a.t()).mm(rows(p_.w)).view({-1});
    }
    return result;
  }

 private:
  Tensor rows(const Tensor& v) const { return v.view({p_.tasks, -1}); }
  Parts p_;
};

}  // namespace

void TaskInteractionOptions::validate() const {
  if (!(rate >= 0) || !std::isfinite(rate)) {
    throw std::invalid_argument(fmt::format(
        "inner rate = {}: must be finite and above 0, or 0 for one from the data's curvature", rate));
  }
  if (!(first_regularizer >= least_regularizer) || !std::isfinite(first_regularizer)) {
    throw std::invalid_argument(fmt::format(
        "first_regularizer = {}: must be finite and at least {}, or the inner problem is singular",
        first_regularizer, least_regularizer));
  }
  if (!(first_coupling > 0) || !std::isfinite(first_coupling)) {
    throw std::invalid_argument(
        fmt::format("first_coupling = {}: must be finite and above 0", first_coupling));
  }
}

TaskInteraction::TaskInteraction(TaskSets sets, const TaskInteractionOptions& options,
                                 const at::TensorOptions& tensors)
    : sets_(std::move(sets)), options_(options), tensors_(tensors) {
  options.validate();
  if (sets_.tasks > 1 || options.coupling == Coupling::learned) sets_.validate();
  for (TaskExamples* examples : {&sets_.train, &sets_.valid, &sets_.test}) *examples = examples->to(tensors);
  features_ = sets_.train.features.size(1);
  tasks_ = sets_.tasks;
  blocks_ = sets_.classes_are_tasks ? 1 : tasks_;
  train_ = train_blocks({});
  valid_ = valid_blocks({});
  const auto product = [&](const Tensor& v) {
    const Tensor along = train_.features.bmm(v.view({blocks_, features_, 1})) * train_.weights.unsqueeze(2);
    return train_.features.mT().bmm(along).reshape({-1});
  };
  gram_ = extreme_eigenvalues(product, blocks_ * features_, tensors, {.relative_tolerance = 1e-3}).largest;
  if (!(gram_ > 0) || !std::isfinite(gram_)) {
    throw std::invalid_argument(fmt::format(
        "the training features give the inner problem a curvature of {}: are they all zero, or far "
        "too large? Scale them first",
        gram_));
  }
  curvature_ = gram_ / static_cast<double>(sets_.classes);
  rate_ = options.rate > 0 ? options.rate : 0.2 / curvature_;
}

// ---- examples in blocks ----

TaskInteraction::Blocks TaskInteraction::blocks_of(const TaskExamples& examples, double scale,
                                                   const Batch& batch) const {
  const Tensor features = batch_rows(examples.features, batch), labels = batch_rows(examples.labels, batch);
  const int64_t count = labels.numel();
  const double weight = scale / static_cast<double>(count);
  if (blocks_ == 1) {
    return {features.unsqueeze(0), labels.unsqueeze(0), at::full({1, count}, weight, tensors_)};
  }
  const Tensor tasks = batch_rows(examples.tasks, batch).cpu();
  const Tensor counts = at::bincount(tasks, {}, blocks_);
  const int64_t longest = counts.max().item<int64_t>();
  // The examples in the order of their tasks, and the place of each in its block.
  const Tensor order = std::get<1>(tasks.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
  const Tensor sorted = tasks.index_select(0, order);
  const Tensor place =
      at::arange(count, tasks.options()) - (counts.cumsum(0) - counts).index_select(0, sorted);
  const Tensor slot = (sorted * longest + place).to(tensors_.device()), from = order.to(tensors_.device());
  const auto spread = [&](const Tensor& rows) {
    std::vector<int64_t> sizes = rows.sizes().vec();
    sizes[0] = blocks_ * longest;
    return at::zeros(sizes, rows.options()).index_copy_(0, slot, rows.index_select(0, from));
  };
  return {spread(features).view({blocks_, longest, features_}), spread(labels).view({blocks_, longest}),
          spread(at::full({count}, weight, tensors_)).view({blocks_, longest})};
}

TaskInteraction::Blocks TaskInteraction::train_blocks(const Batch& batch) const {
  if (batch.is_full() && train_.features.defined()) return train_;
  return blocks_of(sets_.train, static_cast<double>(blocks_), batch);
}

TaskInteraction::Blocks TaskInteraction::valid_blocks(const Batch& batch) const {
  if (batch.is_full() && valid_.features.defined()) return valid_;
  return blocks_of(sets_.valid, 1, batch);
}

Tensor TaskInteraction::scores(const Blocks& blocks, const Tensor& w) const {
  return blocks.features.bmm(w.view({blocks_, sets_.classes, features_}).mT());
}

Tensor TaskInteraction::cross_entropy(const Blocks& blocks, const Tensor& w) const {
  const Tensor each =
      cross_entropies(scores(blocks, w).reshape({-1, sets_.classes}), blocks.labels.view({-1}));
  return (each * blocks.weights.view({-1})).sum();
}

Tensor TaskInteraction::cross_entropy_gradient(const Blocks& blocks, const Tensor& probabilities) const {
  const Tensor target = at::one_hot(blocks.labels, sets_.classes).to(tensors_.dtype());
  const Tensor slopes = (probabilities - target) * blocks.weights.unsqueeze(2);
  return slopes.mT().bmm(blocks.features).reshape({-1});
}

// ---- x ----

Tensor TaskInteraction::interaction(const Tensor& x) const {
  if (options_.coupling == Coupling::none) return at::zeros({tasks_, tasks_}, x.options());
  const Tensor a = at::softplus(x.slice(0, 0, -1)).view({tasks_, tasks_});
  return a + a.t();
}

Tensor TaskInteraction::regularizer(const Tensor& x) const { return at::softplus(x.slice(0, -1)); }

Tensor TaskInteraction::quadratic(const Tensor& x) const {
  const Tensor ridge = (2 * regularizer(x)).expand({tasks_}).diag();
  return options_.coupling == Coupling::none ? ridge : ridge + 4 * laplacian(interaction(x));
}

double TaskInteraction::coupling_curvature(const Tensor& x) const {
  return at::linalg_eigvalsh(4 * laplacian(interaction(x)).cpu().to(at::kDouble)).max().item<double>();
}

double TaskInteraction::smoothness_bound(const Tensor& x) const {
  return 0.5 * gram_ + 2 * regularizer(x).item<double>() + coupling_curvature(x);
}

double TaskInteraction::room() const {
  return std::max(stable_part * 2 / rate_ - curvature_, 2 * least_regularizer * curvature_);
}

double TaskInteraction::largest_curvature() const { return 0.5 * gram_ + room(); }

void TaskInteraction::project_outer_(Tensor& x) const {
  const double room = this->room();
  const Tensor nu = x.slice(0, -1).clamp(inverse_softplus(0.5 * least_regularizer * curvature_),
                                         inverse_softplus(0.25 * room));  // at most half of the room
  if (options_.coupling == Coupling::none) {
    x = nu;
    return;
  }
  Tensor b = x.slice(0, 0, -1);
  const double used = coupling_curvature(x), left = room - 2 * at::softplus(nu).item<double>();
  if (used > left) b = inverse_softplus(at::softplus(b) * (left / used));
  x = at::cat({b, nu});
}

// ---- the problem ----

Tensor TaskInteraction::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  Tensor loss = cross_entropy(train_blocks(batch), w) + (regularizer(x) * w.dot(w)).sum();
  if (options_.coupling == Coupling::none) return loss;
  return loss + (interaction(x) * pair_products(models(w), models(w))).sum();
}

Tensor TaskInteraction::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  return cross_entropy(valid_blocks(batch), w);
}

Tensor TaskInteraction::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Blocks blocks = train_blocks(batch);
  return cross_entropy_gradient(blocks, scores(blocks, w).softmax(2)) + quadratic(x).mm(models(w)).view({-1});
}

std::unique_ptr<Linearization> TaskInteraction::linearize(const Tensor& w, const Tensor& x,
                                                          const Batch& batch) const {
  const Blocks blocks = train_blocks(batch);
  const Tensor probabilities = scores(blocks, w).softmax(2), matrix = quadratic(x);
  return std::make_unique<TaskLinearization>(TaskLinearization::Parts{
      .features = blocks.features,
      .weights = blocks.weights,
      .probabilities = probabilities,
      .gradient = cross_entropy_gradient(blocks, probabilities) + matrix.mm(models(w)).view({-1}),
      .quadratic = matrix,
      .w = w,
      .x = x,
      .tasks = tasks_,
      .coupled = options_.coupling == Coupling::learned});
}

OuterGradients TaskInteraction::outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Blocks blocks = valid_blocks(batch);
  return {.loss = cross_entropy(blocks, w),
          .w = cross_entropy_gradient(blocks, scores(blocks, w).softmax(2)),
          .x = at::zeros_like(x)};
}

Tensor TaskInteraction::initial_inner(uint64_t /*seed*/) const {
  return at::zeros({blocks_ * sets_.classes * features_}, tensors_);
}

Tensor TaskInteraction::initial_outer(uint64_t /*seed*/) const {
  const Tensor nu = at::full({1}, inverse_softplus(0.5 * options_.first_regularizer * curvature_), tensors_);
  if (options_.coupling == Coupling::none) return nu;
  // Of C = A + A' half is A's.
  const double a = 0.5 * options_.first_coupling * curvature_ / (4 * static_cast<double>(tasks_));
  return at::cat({at::full({tasks_ * tasks_}, inverse_softplus(a), tensors_), nu});
}

// ---- how well it does ----

Tensor TaskInteraction::models(const Tensor& w) const { return w.view({tasks_, -1}); }

double TaskInteraction::percent_right(const Blocks& blocks, const Tensor& w) const {
  const Tensor right =
      scores(blocks, w.detach()).argmax(2).eq(blocks.labels).to(blocks.weights.scalar_type());
  return 100 * ((right * blocks.weights).sum() / blocks.weights.sum()).item<double>();
}

double TaskInteraction::accuracy(const Tensor& w, const TaskExamples& examples) const {
  return percent_right(blocks_of(examples, 1, {}), w);
}

double TaskInteraction::loss(const Tensor& w, const TaskExamples& examples) const {
  return cross_entropy(blocks_of(examples, 1, {}), w.detach()).item<double>();
}

std::map<std::string, double> TaskInteraction::metrics(const Tensor& w, const Tensor& /*x*/) const {
  return {{"train_accuracy", percent_right(train_, w)}, {"valid_accuracy", percent_right(valid_, w)}};
}

}  // namespace bilevel
