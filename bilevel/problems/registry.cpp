#include "bilevel/problems/registry.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/problems/counterexample.h"
#include "bilevel/problems/hyper_cleaning.h"
#include "bilevel/problems/learned_rate.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/problems/quadratic.h"
#include "bilevel/problems/ridge.h"
#include "bilevel/problems/softmax_regression.h"
#include "bilevel/problems/task_interaction.h"
#include "bilevel/problems/toy.h"
#include "bilevel/problems/weighted_softmax.h"

namespace bilevel {
namespace {

struct Maker {
  ProblemRow row;
  bool takes_data;  // files, bias and regularization
  NamedProblem (*make)(const ProblemOptions&);
};

NamedProblem named(std::unique_ptr<Problem> problem, int64_t steps, double rate, bool convex, bool constant) {
  return {.name = {},
          .problem = std::move(problem),
          .inner_steps = steps,
          .inner_rate = rate,
          .convex = convex,
          .constant_curvature = constant};
}

bool has_files(const ProblemOptions& o) {
  return !o.train_features.empty() || !o.train_labels.empty() || !o.valid_features.empty() ||
         !o.valid_labels.empty();
}

NamedProblem make_hyper_cleaning(const ProblemOptions& o) {
  const bool files = has_files(o);
  CleaningData data =
      files ? read_cleaning_files({o.train_features, o.train_labels, o.valid_features, o.valid_labels})
            : draw_cleaning_data({}, o.seed);
  if (o.bias) data = data.with_bias();
  // 0.001 is K-RMD's and stocBiO's; on the small synthetic set it would take ten times the steps.
  const double regularization = o.regularization >= 0 ? o.regularization : files ? 0.001 : 0.01;
  std::unique_ptr<Problem> problem;
  double largest = 0;
  if (o.tensors.device().is_cpu()) {  // closed forms: the same numbers, several times faster
    auto fused = std::make_unique<WeightedSoftmax>(data, regularization, o.tensors);
    largest = fused->smoothness_bound();
    problem = std::move(fused);
  } else {
    auto by_autograd = std::make_unique<HyperCleaning>(data, regularization, o.tensors);
    largest = by_autograd->smoothness_bound();
    problem = std::move(by_autograd);
  }
  const double smallest = 2 * regularization;  // cross entropy is flat along some directions
  // The papers' 100 steps on files. On synthetic data as many as shrink the slowest error by 1e-14, but an
  // inner problem that is nearly flat is left unsolved.
  const double wanted = std::log(1e14) * largest / smallest;
  const int64_t steps = files ? 100 : static_cast<int64_t>(std::ceil(std::min(wanted, 2000.0)));
  const double rate = largest > 0 ? 1 / largest : 1;
  return named(std::move(problem), steps, rate, regularization > 0, false);
}

NamedProblem make_task_interaction(const ProblemOptions& o) {
  const TaskSets sets = draw_clustered_tasks(
      {.tasks = 4, .clusters = 2, .features = 4, .train = 10, .valid = 10, .test = 10, .seed = o.seed});
  // A start that is regularised enough to be solved in a few hundred steps.
  TaskInteractionOptions options{.first_regularizer = 0.2, .first_coupling = 0.5};
  const TaskInteraction at_first(sets, options, o.tensors);
  const double rate = 1 / at_first.smoothness_bound(at_first.initial_outer(0));
  options.rate = rate;  // x is kept where this one is stable
  auto problem = std::make_unique<TaskInteraction>(sets, options, o.tensors);
  const double largest = problem->largest_curvature();
  NamedProblem result = named(std::move(problem), 600, rate, true, false);
  result.largest_curvature = largest;
  return result;
}

// Steps and rates: enough to solve the convex problems to rounding with any data seed
// (tests/problems/registry_test), at a rate of at most 1/L, where the bounds hold. The toy and the quadratic
// keep their papers' rates.
const std::vector<Maker>& makers() {
  static const std::vector<Maker> table{
      {{"toy", "K-RMD's two-dimensional toy (section 4.1), stopped after 100 steps"},
       false,
       [](const ProblemOptions& o) { return named(std::make_unique<Toy>(o.tensors), 100, 0.1, true, true); }},
      {{"toy-interfering", "the toy with 5|x - (1,0)|^2 in the outer loss: truncation is biased"},
       false,
       [](const ProblemOptions& o) {
         return named(std::make_unique<Toy>(o.tensors, true), 100, 0.1, true, true);
       }},
      {{"quadratic", "FSLA's least squares in both levels (section 6.1)"},
       false,
       [](const ProblemOptions& o) {
         return named(std::make_unique<Quadratic>(QuadraticOptions{.seed = o.seed, .tensors = o.tensors}),
                      1200, 2e-5, true, true);
       }},
      {{"ridge", "ridge regression with one regulariser per feature, closed-form hypergradient"},
       false,
       [](const ProblemOptions& o) {
         constexpr double rate = 0.3;
         NamedProblem ridge = named(
             std::make_unique<Ridge>(RidgeOptions{.stable_rate = rate, .seed = o.seed, .tensors = o.tensors}),
             1000, rate, true, false);
         ridge.outer_rate = 0.01;  // the curvature has exp(x) in it: the inner loop must be able to follow
         return ridge;
       }},
      {{"softmax-regression",
        "softmax regression with one regulariser per feature (stocBiO's 20 Newsgroups form)"},
       false,
       [](const ProblemOptions& o) {
         constexpr double rate = 8;
         return named(std::make_unique<SoftmaxRegression>(SoftmaxRegressionOptions{
                          .seed = o.seed, .tensors = o.tensors, .stable_rate = rate}),
                      200, rate, true, false);
       }},
      {{"hyper-cleaning", "softmax regression with one weight per example, on synthetic or your own data"},
       true,
       make_hyper_cleaning},
      {{"task-interaction",
        "K-RMD's multitask learning (section 4.2.2): how strongly tasks pull at each other"},
       false,
       make_task_interaction},
      {{"mlp", "a small tanh network, non-convex: regularisers and example weights"},
       false,
       [](const ProblemOptions& o) {
         return named(std::make_unique<Mlp>(MlpOptions{.seed = o.seed, .tensors = o.tensors}), 100, 0.3,
                      false, false);
       }},
      {{"learned-rate", "a small network whose rates, start and regularisers are learned"},
       false,
       [](const ProblemOptions& o) {
         const LearnedRateOptions options{.seed = o.seed, .tensors = o.tensors};
         return named(std::make_unique<LearnedRate>(options), 20, options.initial_rate, false, false);
       }},
      {{"counterexample", "K-RMD's Theorem 3.5: truncation converges to the wrong point"},
       false,
       [](const ProblemOptions& o) {
         return named(std::make_unique<Counterexample>(o.tensors), 100, 0.5, true, true);
       }},
  };
  return table;
}

void check_options(const Maker& maker, const ProblemOptions& o) {
  const auto dtype = c10::typeMetaToScalarType(o.tensors.dtype());
  if (dtype != at::kDouble && dtype != at::kFloat) {
    throw std::invalid_argument(fmt::format("dtype = {}: must be float or double", c10::toString(dtype)));
  }
  if (std::isnan(o.regularization) || std::isinf(o.regularization)) {
    throw std::invalid_argument(fmt::format(
        "regularization = {}: must be finite (negative = the problem's default)", o.regularization));
  }
  if (maker.takes_data) return;
  // An option that would be ignored is an error: its user believes it did something.
  const char* unused = has_files(o)            ? "features and labels of your own"
                       : o.bias                ? "bias"
                       : o.regularization >= 0 ? "regularization"
                                               : nullptr;
  if (unused != nullptr) {
    throw std::invalid_argument(
        fmt::format("problem {} does not take {}: only hyper-cleaning does", maker.row.name, unused));
  }
}

}  // namespace

const std::vector<ProblemRow>& problem_rows() {
  static const std::vector<ProblemRow> rows = [] {
    std::vector<ProblemRow> result;
    for (const Maker& maker : makers()) result.push_back(maker.row);
    return result;
  }();
  return rows;
}

NamedProblem make_problem(const std::string& name, const ProblemOptions& options) {
  std::vector<std::string> names;
  for (const Maker& maker : makers()) {
    if (maker.row.name == name) {
      check_options(maker, options);
      NamedProblem result = maker.make(options);
      result.name = name;
      if (options.weight_decay != 0) {
        result.problem = std::make_unique<WithWeightDecay>(std::move(result.problem), options.weight_decay);
        if (result.largest_curvature > 0) result.largest_curvature += options.weight_decay;
        result.inner_rate /= 1 + result.inner_rate * options.weight_decay;  // 1 / L becomes 1 / (L + decay)
      }
      return result;
    }
    names.push_back(maker.row.name);
  }
  refuse_unknown("problem", name, names);
}

}  // namespace bilevel
