#include "bilevel/meta/learner.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "bilevel/core/errors.h"
#include "bilevel/core/require.h"
#include "bilevel/hypergradients/reverse.h"
#include "bilevel/hypergradients/truncated.h"
#include "bilevel/meta/block_cg.h"
#include "bilevel/meta/embedded_tasks.h"
#include "bilevel/meta/first_order.h"
#include "bilevel/meta/head_problem.h"
#include "bilevel/meta/network_problem.h"

namespace bilevel::meta {
namespace {

bool has_linear_heads(const std::string& name) { return name == "aid" || name == "itd" || name == "anil"; }
bool is_implicit(const std::string& name) { return name == "aid" || name == "imaml"; }

// How many layers tasks share without changing them.
int64_t shared_layers(const std::string& learner, const Network& network) {
  if (has_linear_heads(learner)) return network.layers() - 1;
  if (learner == "hyper-representation") return network.layers() / 2;
  return 0;
}

}  // namespace

const std::vector<std::string>& learner_names() {
  static const std::vector<std::string> names = {
      "aid", "itd", "anil", "maml", "maml-first-order", "imaml", "hyper-representation"};
  return names;
}

std::vector<std::string> options_read_by(const std::string& learner) {
  if (learner == "aid") return {"terms", "tolerance", "curvature", "ridge"};
  if (learner == "itd") return {"ridge", "truncate"};
  if (learner == "imaml") return {"terms", "tolerance", "curvature", "proximal"};
  if (learner == "hyper-representation") return {"centre_weight", "truncate"};
  return {};
}

void LearnerOptions::validate() const {
  if (std::find(learner_names().begin(), learner_names().end(), name) == learner_names().end()) {
    refuse_unknown("learner", name, learner_names());
  }
  require_at_least("inner_steps", inner_steps, 0);
  require_nonnegative("growth", growth);
  require_positive("inner_rate", inner_rate);
  require_at_least("terms", terms, 0);
  require(tolerance >= 0, "tolerance", tolerance, "at least 0");
  require(truncate >= 0, "truncate", truncate, "at least 0 (0 = all steps)");
  require_nonnegative("ridge", ridge);
  require_positive("proximal", proximal);
  require_positive("centre_weight", centre_weight);
  if (curvature != "hessian" && curvature != "gauss-newton") {
    refuse_unknown("curvature", curvature, {"hessian", "gauss-newton"});
  }
  if (name == "aid" && ridge == 0) {
    throw std::invalid_argument(
        "ridge = 0: aid solves a linear system in each head, which is singular without a ridge (more "
        "features than examples, and a softmax has a free constant); give a ridge above 0, or use itd or "
        "anil");
  }
  if (truncate > 0 && name != "itd" && name != "hyper-representation") {
    throw std::invalid_argument(
        fmt::format("truncate = {}: {} does not go back through inner steps to what it learns, or learns the "
                    "start, which truncation cuts off; itd and hyper-representation take it",
                    truncate, name));
  }
}

LearnerOptions default_learner_options(const std::string& name) {
  LearnerOptions options;
  options.name = name;
  if (name == "aid" || name == "itd") {
    options.inner_steps = 20;
    options.inner_rate = 0.05;  // features grow while they are learned, and the safe rate falls
  } else if (name == "anil") {
    options.inner_steps = 5;
    options.inner_rate = 0.1;
  } else if (name == "maml" || name == "maml-first-order") {
    options.inner_steps = 3;
    options.inner_rate = 0.1;
  } else if (name == "imaml") {
    options.inner_steps = 10;
    options.inner_rate = 0.1;
    options.terms = 5;
    options.proximal = 2;
    options.curvature = "gauss-newton";
  } else if (name == "hyper-representation") {
    options.inner_steps = 50;
    options.truncate = 10;
    options.inner_rate = 0.1;
    options.centre_weight = 0.02;
  }
  options.validate();
  return options;
}

// One of the two problems, with what both have and Problem has not.
class Learner::Inner {
 public:
  Inner(const Learner& learner, const TaskBatch& tasks) {
    const LearnerOptions& options = learner.options_;
    if (has_linear_heads(options.name)) {
      const bool anil = options.name == "anil";
      head_.emplace(tasks, learner.embedding_.output_size(), learner.task_network_.output_size(),
                    HeadOptions{.ridge = anil ? 0 : options.ridge, .learned_start = anil}, learner.tensors_);
    } else {
      const bool hyper = options.name == "hyper-representation";
      network_.emplace(tasks, learner.task_network_,
                       CentreOptions{.learned_features = hyper,
                                     .learned_weights = hyper,
                                     .weight = options.name == "imaml" ? options.proximal / 2 : 0});
    }
  }
  const Problem& problem() const { return head_ ? static_cast<const Problem&>(*head_) : *network_; }
  Tensor start() const { return head_ ? head_->initial_inner(0) : Tensor(); }
  Tensor valid_outputs(const Tensor& w, const Tensor& z) const {
    return head_ ? head_->valid_outputs(w, z) : network_->valid_outputs(w, z);
  }

 private:
  std::optional<HeadProblem> head_;
  std::optional<NetworkProblem> network_;
};

Learner::Learner(const LearnerOptions& options, const Network& network, const at::TensorOptions& tensors)
    : options_(options),
      tensors_(tensors),
      network_(network),
      embedding_(network.first(shared_layers(options.name, network))),
      task_network_(network.rest(embedding_.layers())) {
  options_.validate();
  if (embedding_.parameters() > 0) outer_.add("embedding", {embedding_.parameters()});
  if (options_.name == "aid" || options_.name == "itd") return;
  outer_.add(options_.name == "hyper-representation" ? "centre" : "start", {task_network_.parameters()});
  if (options_.name == "hyper-representation") {
    outer_.add("log_weights", {task_network_.layers()});
    outer_.add("log_rate", {1});
  }
}

Tensor Learner::initial_outer(uint64_t seed) const {
  const Tensor whole = network_.initial(seed, tensors_);
  if (options_.name == "aid" || options_.name == "itd") {
    return whole.narrow(0, 0, embedding_.parameters()).clone();
  }
  if (options_.name != "hyper-representation") return whole;
  return at::cat({whole, at::full({task_network_.layers()}, std::log(options_.centre_weight), tensors_),
                  at::full({1}, std::log(options_.inner_rate), tensors_)});
}

int64_t Learner::inner_steps(int64_t iteration) const {
  if (options_.growth == 0) return options_.inner_steps;
  return static_cast<int64_t>(
      std::ceil(options_.growth * std::pow(static_cast<double>(iteration) + 1, 0.25)));
}

InnerOptions Learner::inner_options(int64_t iteration) const {
  InnerOptions inner;
  inner.optimizer = "gd";
  inner.steps = inner_steps(iteration);
  inner.rate = options_.inner_rate;
  return inner;
}

TaskBatch Learner::on_device(const TaskBatch& tasks) const {
  const auto targets = [&](const Tensor& t) {
    return t.is_floating_point() ? t.to(tensors_) : t.to(tensors_.device());
  };
  return {tasks.train_inputs.to(tensors_), targets(tasks.train_targets), tasks.valid_inputs.to(tensors_),
          targets(tasks.valid_targets)};
}

std::unique_ptr<HypergradientEstimator> Learner::make_estimator(int64_t tasks, int64_t steps) const {
  if (is_implicit(options_.name)) {
    BlockCgOptions cg{.blocks = tasks, .steps = options_.terms, .relative_tolerance = options_.tolerance};
    cg.curvature.kind = options_.curvature;
    return std::make_unique<BlockCg>(cg);
  }
  if (options_.name == "maml-first-order") return std::make_unique<FirstOrder>();
  if (options_.truncate > 0 && options_.truncate < steps) {
    return std::make_unique<Truncated>(TruncatedOptions{.steps = options_.truncate});
  }
  return std::make_unique<Reverse>();
}

Hypergradient Learner::hypergradient(const Tensor& x, const TaskBatch& tasks, int64_t iteration) const {
  const TaskBatch here = on_device(tasks);
  const EmbeddedTasks embedded(embedding_, x, here, /*with_derivative=*/true);
  const Inner inner(*this, here);
  Oracle oracle(inner.problem());
  const auto estimator = make_estimator(here.tasks(), inner_steps(iteration));

  InnerLoop run;
  run.options = inner_options(iteration);
  run.measure_gradient = false;
  run.keep = estimator->keeps(run.options.steps, here.tasks() * task_network_.parameters() *
                                                     static_cast<int64_t>(tensors_.dtype().itemsize()));
  Trajectory trajectory = run_inner(oracle, embedded.z(), inner.start(), run);
  Hypergradient result = estimator->estimate(oracle, {.x = embedded.z(), .inner = trajectory});
  if (result.status == Status::not_finite) {
    throw NotFiniteError(
        fmt::format("{}: the hypergradient is not finite after {} inner steps at rate {:g}, while the inner "
                    "iterates are; lower the inner rate or the outer rate",
                    options_.name, trajectory.steps(), trajectory.last_rate()));
  }
  result.value = embedded.pullback(result.value);
  result.direct.reset();  // it is of z, and would cost another pass
  result.counts = oracle.counts();
  return result;
}

Tensor Learner::outputs(const Tensor& x, const TaskBatch& tasks, int64_t iteration) const {
  const TaskBatch here = on_device(tasks);
  const EmbeddedTasks embedded(embedding_, x, here, /*with_derivative=*/false);
  const Inner inner(*this, here);
  Oracle oracle(inner.problem());
  InnerLoop run;
  run.options = inner_options(iteration);
  run.measure_gradient = false;
  const Trajectory trajectory = run_inner(oracle, embedded.z(), inner.start(), run);
  const at::NoGradGuard no_graph;
  return inner.valid_outputs(trajectory.final.w, embedded.z());
}

}  // namespace bilevel::meta
