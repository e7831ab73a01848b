// Every option of every algorithm changes the result of a run, or is refused: nothing is accepted and then
// ignored. What a row of the registry claims to read is compared with what changes the bits of a run, in both
// directions; double-loop is asked with every estimator. Prints the table.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/algorithms/options.h"
#include "bilevel/algorithms/registry.h"
#include "bilevel/core/oracle.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/problems/registry.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Option = std::string;

struct Job {
  std::string algorithm;
  AlgorithmSettings settings;
  StreamOptions batches;
};

AlgorithmSettings plain_settings() {
  AlgorithmSettings s;
  s.inner.steps = 3;
  s.inner.rate = 0.02;
  s.outer.rate = 0.05;
  s.hypergradient.terms = 3;
  s.hypergradient.truncate = 1;
  s.hypergradient.curvature.damping = 1;  // or conjugate gradients end at the network's negative curvature
  return s;
}

// A value that must change the result wherever it is read.
void change(const Option& option, Job& job) {
  AlgorithmSettings& s = job.settings;
  const Schedule falling{.kind = ScheduleKind::power, .exponent = 0.4};
  const std::map<Option, std::function<void()>> changes = {
      {"inner_steps", [&] { s.inner.steps = 5; }},
      {"inner_rate", [&] { s.inner.rate = 0.03; }},
      {"inner_optimizer", [&] { s.inner.optimizer = "adam"; }},
      {"inner_momentum", [&] { s.inner.momentum = 0.5; }},
      {"inner_clip", [&] { s.inner.clip_norm = 1e-3; }},
      {"inner_schedule", [&] { s.inner.schedule = falling; }},
      {"outer_rate", [&] { s.outer.rate = 0.1; }},
      {"outer_optimizer", [&] { s.outer.optimizer = s.outer.optimizer == "adam" ? "sgd" : "adam"; }},
      {"outer_momentum", [&] { s.outer.momentum = 0.5; }},
      {"outer_schedule", [&] { s.outer.schedule = falling; }},
      {"method", [&] { s.method = s.method == "t1t2" ? "one-step" : "t1t2"; }},
      {"terms", [&] { s.hypergradient.terms = 2; }},
      {"truncate", [&] { s.hypergradient.truncate = 2; }},
      {"linear_rate", [&] { s.linear_rate = 0.05; }},
      {"linear_schedule", [&] { s.linear_schedule = falling; }},
      {"damping", [&] { s.hypergradient.curvature.damping = 0.5; }},
      {"curvature", [&] { s.hypergradient.curvature.kind = "gauss-newton"; }},
      {"difference_cross", [&] { s.hypergradient.curvature.difference_cross = true; }},
      {"error_bound", [&] { s.with_bound = true; }},
      {"growth", [&] { s.growth = 1; }},
      {"strong_convexity", [&] { s.strong_convexity = 1; }},
      {"hessian_batch", [&] { s.hessian_batch = 5; }},
      {"momentum_decay", [&] { s.momentum_decay = 0.5; }},
      {"averaging", [&] { s.averaging = 0.5; }},
      {"period", [&] { s.period = 2; }},
      {"large_batch", [&] { s.large_batch = 7; }},
      {"penalty", [&] { s.penalty = 20; }},
      {"penalty_growth", [&] { s.penalty_growth = 0.5; }},
      {"joint_rate", [&] { s.joint_rate = 0.03; }},
      {"barrier", [&] { s.barrier = 0.9; }},
  };
  changes.at(option)();
}

// Where the option must bite. A network's Gauss-Newton matrix is not its Hessian; first-order DARTS moves x
// only where f has x in it; a bound needs a convex inner problem.
const NamedProblem& problem_of(const Option& option) {
  static const NamedProblem network = make_problem("mlp"), with_x = make_problem("toy-interfering"),
                            convex = make_problem("ridge");
  if (option.starts_with("outer_")) return with_x;
  return option == "error_bound" ? convex : network;
}

// Everything that a few iterations leave behind.
std::vector<Tensor> result_of(const Job& job, const Problem& problem) {
  const auto algorithm = find_algorithm(job.algorithm).make(job.settings);
  Oracle oracle(problem);
  Streams streams(0, problem.inner_samples(), problem.outer_samples(), job.batches);
  AlgorithmState state = algorithm->init(oracle, problem.initial_outer(1), problem.initial_inner(2));
  std::vector<Tensor> result;
  for (int64_t k = 0; k < 3; ++k) {
    const IterationSummary step = algorithm->step(oracle, state, streams);
    result.push_back(step.direction);
    if (step.outer_loss.defined()) result.push_back(step.outer_loss);
    result.push_back(at::full({}, static_cast<double>(step.bound.kind), at::kDouble));
  }
  result.push_back(state.x);
  result.push_back(state.inner.w);
  if (state.v.defined()) result.push_back(state.v);
  for (const auto& [name, tensor] : state.memory) result.push_back(tensor);
  return result;
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return true;
}

std::string refusal(const Job& job, const Option& option) {
  try {
    require_read({job.algorithm}, job.settings, option);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

// One job, with its results as they are without a change, by problem.
class Unchanged {
 public:
  explicit Unchanged(Job job) : job_(std::move(job)) {}
  const Job& job() const { return job_; }
  const std::vector<Tensor>& result(const Problem& problem) {
    std::vector<Tensor>& found = results_[&problem];
    if (found.empty()) found = result_of(job_, problem);
    return found;
  }

 private:
  Job job_;
  std::map<const Problem*, std::vector<Tensor>> results_;
};

// Whether the option changes the result; asserts that it is refused exactly where it does not.
bool changes_or_is_refused(Unchanged& unchanged, const Option& option) {
  const Job& job = unchanged.job();
  const Problem& problem = *problem_of(option).problem;
  Job changed = job;
  change(option, changed);
  const bool changes = !same_bits(unchanged.result(problem), result_of(changed, problem));
  const std::string said = refusal(job, option);
  if (changes) {
    EXPECT_EQ(said, "accepted") << job.algorithm << " " << option << " (" << job.settings.method << ")";
  } else {
    EXPECT_THAT(said, AllOf(HasSubstr(option), HasSubstr(job.algorithm)))
        << "accepted and ignored; method " << job.settings.method;
  }
  return changes;
}

// Read with one optimiser and not with another.
bool depends_on_optimizer(const Option& option) {
  return option == "inner_momentum" || option == "outer_momentum" || option == "outer_schedule";
}

struct Row {
  std::string name;
  Job job;
  std::set<Option> asked;
};

// All algorithms with all options; double-loop with every estimator's own.
std::vector<Row> all_rows() {
  const std::set<Option> all(algorithm_options().begin(), algorithm_options().end());
  const std::set<Option> of_estimators{"method",  "terms",     "truncate",        "linear_rate",
                                       "damping", "curvature", "difference_cross"};
  std::vector<Row> rows;
  for (const AlgorithmRow& row : algorithm_rows()) {
    rows.push_back({row.name, {row.name, plain_settings(), {.inner_batch = 8, .outer_batch = 8}}, all});
  }
  const Job double_loop = rows.front().job;
  for (const EstimatorRow& estimator : estimator_rows()) {
    rows.push_back({"double-loop " + estimator.name, double_loop, of_estimators});
    rows.back().job.settings.method = estimator.name;
  }
  return rows;
}

TEST(EveryOption, ChangesTheResultOrIsRefused) {
  std::string table = fmt::format("{:<30}", "x: changes the result");
  for (size_t i = 0; i < algorithm_options().size(); ++i) table += fmt::format("{:>3}", i + 1);
  table += "\n-: refused";
  for (const Row& row : all_rows()) {
    Unchanged plain(row.job);
    Job momenta = row.job;
    momenta.settings.inner.optimizer = "heavy-ball";
    momenta.settings.outer.optimizer = "adam";
    Unchanged with_momenta(momenta);
    table += fmt::format("\n{:<30}", row.name);
    for (const Option& option : algorithm_options()) {
      if (!row.asked.contains(option)) {
        table += "   ";
        continue;
      }
      bool changes = changes_or_is_refused(plain, option);
      if (depends_on_optimizer(option)) changes = changes_or_is_refused(with_momenta, option) || changes;
      table += changes ? "  x" : "  -";
    }
  }
  int number = 0;
  for (const Option& option : algorithm_options()) {
    table += fmt::format("{}{:>2} {:<22}", number % 5 == 0 ? "\n" : "", number + 1, flag_of(option));
    ++number;
  }
  fmt::print("{}\n", table);
}

TEST(EveryOption, IsReadBySomeAlgorithm) {
  for (const Option& option : algorithm_options()) {
    const bool read = std::any_of(algorithm_rows().begin(), algorithm_rows().end(),
                                  [&](const AlgorithmRow& row) { return row.options.has(option); });
    EXPECT_TRUE(read) << flag_of(option);
  }
}

TEST(EveryOption, IsRefusedWithWhatWouldReadIt) {
  AlgorithmSettings s = plain_settings();
  const auto said = [&](const std::string& algorithm, Option option) {
    return refusal({.algorithm = algorithm, .settings = s, .batches = {}}, option);
  };
  EXPECT_EQ(
      said("itd", "truncate"),
      "truncate has no effect with itd; only double-loop, krmd and storm-double-loop use it. Leave it out");
  EXPECT_EQ(
      said("aid-cg", "inner_momentum"),
      "inner_momentum has no effect with aid-cg and inner_optimizer = gd; only inner_optimizer = heavy-ball "
      "and nesterov use it. Leave it out");
  s.method = "reverse";
  EXPECT_EQ(said("double-loop", "damping"),
            "damping has no effect with double-loop and method = reverse; only exact, neumann, cg, minres, "
            "fixed-point and nystrom "
            "use it. Leave it out");
  s.growth = 2;
  EXPECT_EQ(said("aid-increasing", "inner_steps"),
            "inner_steps has no effect with aid-increasing and growth, which sets T. Leave it out");
}

}  // namespace
}  // namespace bilevel::test
