#include "cli/problem_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <vector>

namespace bilevel::cli {

void add_problem_options(CLI::App& command, ProblemFlags& f) {
  command.add_option("--problem", f.problem, "which problem; `bilevel list` shows them")->required();
  command
      .add_option("--seed", f.data.seed, "of the synthetic data, the starting points and all that is drawn")
      ->capture_default_str();
  command.add_option("--weight-decay", f.data.weight_decay, "adds decay/2 |w|^2 to the inner loss")
      ->capture_default_str();
  auto* data = command.add_option_group("data of your own (hyper-cleaning)");
  data->add_option("--train-features", f.data.train_features, "matrix, .npy");
  data->add_option("--train-labels", f.data.train_labels, "integers, .npy");
  data->add_option("--valid-features", f.data.valid_features, "matrix, .npy");
  data->add_option("--valid-labels", f.data.valid_labels, "integers, .npy");
  data->add_option("--regularization", f.data.regularization, "of |W|^2; 0.001 by default with files")
      ->check(CLI::NonNegativeNumber);
  data->add_flag("--bias", f.data.bias, "append a column of ones, regularised like the rest");
}

NamedProblem make_problem(const CLI::App& command, const ProblemFlags& f) {
  const std::vector<std::string> all = {"--train-features", "--train-labels", "--valid-features",
                                        "--valid-labels"};
  std::vector<std::string> missing;
  for (const std::string& option : all) {
    if (command.count(option) == 0) missing.push_back(option);
  }
  if (!missing.empty() && missing.size() < all.size()) {
    throw std::invalid_argument(fmt::format("{} missing: data of your own needs {}",
                                            fmt::join(missing, " and "), fmt::join(all, ", ")));
  }
  return bilevel::make_problem(f.problem, f.data);
}

void set_problem_defaults(const CLI::App& command, const NamedProblem& problem, Family family,
                          AlgorithmFlags& flags) {
  InnerOptions& inner = flags.settings.inner;
  OuterOptions& outer = flags.settings.outer;
  if (command.count("--outer-optimizer") == 0 && command.count("--outer-rate") == 0) {
    outer.optimizer = "adam";
    outer.rate = problem.outer_rate;
  }
  if (command.count("--inner-steps") == 0) inner.steps = family == Family::cold ? problem.inner_steps : 10;
  if (command.count("--inner-rate") == 0) {
    inner.rate = problem.inner_rate;
  } else if (problem.problem->inner_rate(problem.problem->initial_outer(0)).defined()) {
    throw std::invalid_argument(fmt::format(
        "--inner-rate: problem {} learns its rate, which is part of x; leave it out", problem.name));
  }
  finish_algorithm_options(flags);
}

}  // namespace bilevel::cli
