#include "cli/problem_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/check/default_settings.h"
#include "bilevel/clean/clean.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/jobs/data_digest.h"
#include "bilevel/problems/cleaning_model.h"

namespace bilevel::cli {

void add_problem_options(CLI::App& command, ProblemFlags& f) {
  command.add_option("--problem", f.problem, "which problem; `bilevel list` shows them");
  command
      .add_option("--seed", f.data.seed, "of the synthetic data, the starting points and all that is drawn")
      ->capture_default_str();
  command.add_option("--weight-decay", f.data.weight_decay,
                     "adds decay/2 |w|^2 to the inner loss; 0, but 0.0005 on supernet");
  auto* data = command.add_option_group("data of your own (hyper-cleaning)");
  data->add_option("--train-features", f.data.train_features, "matrix, .npy");
  data->add_option("--train-labels", f.data.train_labels, "integers, .npy");
  data->add_option("--valid-features", f.data.valid_features, "matrix, .npy");
  data->add_option("--valid-labels", f.data.valid_labels, "integers, .npy");
  data->add_option("--regularization", f.data.regularization, "of |W|^2; 0.001 by default with files");
  data->add_flag("--bias", f.data.bias, "append a column of ones, regularised like the rest");
  auto* named = command.add_option_group("a named image set with noise drawn on it (hyper-cleaning)");
  named->add_option("--data", f.named_data, "mnist or fashion-mnist, with a column of ones");
  named
      ->add_option("--data-dir", f.named.folder,
                   "folder of sets known by name: fetched, or unpacked as they come")
      ->envname("BILEVEL_DATA")
      ->capture_default_str();
  named->add_option("--corruption", f.named.corruption, "probability that a training label is replaced")
      ->capture_default_str();
  named->add_option("--train-size", f.named.train, "class-balanced")->capture_default_str();
  named->add_option("--valid-size", f.named.valid, "class-balanced")->capture_default_str();
  auto* network = command.add_option_group("network of architecture search (supernet)");
  network->add_option("--space", f.supernet.space, "search space")
      ->check(CLI::IsMember(nas::space_names()))
      ->capture_default_str();
  network
      ->add_option("--operations", f.supernet.operations,
                   "some of the space's, separated by commas; all by default")
      ->delimiter(',');
  network->add_option("--channels", f.supernet.channels, "of the first stage")->capture_default_str();
  network->add_option("--cells", f.supernet.cells,
                      "a stage in nasbench201, in all elsewhere; 1 and 3 by default");
  network->add_option("--image-size", f.supernet.image_size, "height and width")->capture_default_str();
  network->add_option("--images", f.supernet.images, "for training, and as many for validation")
      ->capture_default_str();
}

std::vector<ProblemRow> all_problem_rows() {
  std::vector<ProblemRow> rows = problem_rows();
  rows.push_back(nas::synthetic_supernet_row());
  return rows;
}

namespace {

// An option that would be ignored is an error: its user believes it did something.
void refuse(const CLI::App& command, const ProblemFlags& f, const std::vector<std::string>& options,
            const char* owner) {
  for (const std::string& option : options) {
    if (command.count(option) > 0) {
      throw std::invalid_argument(
          fmt::format("problem {} does not take {}: only {} does", f.problem, option, owner));
    }
  }
}

const std::vector<std::string>& options_of_named_data() {
  static const std::vector<std::string> names = {"--data", "--corruption", "--train-size", "--valid-size"};
  return names;
}

// The same problem as `bilevel clean --data` works on.
NamedProblem make_named_cleaning(const CLI::App& command, const ProblemFlags& f) {
  for (const char* option : {"--train-features", "--train-labels", "--valid-features", "--valid-labels"}) {
    if (command.count(option) > 0) {
      throw std::invalid_argument(
          fmt::format("--data {} with {}: a named set or your own files, not both", f.named_data, option));
    }
  }
  NamedCleaningOptions sets = f.named;
  sets.set = f.named_data;
  sets.seed = f.data.seed;
  sets.dtype = c10::typeMetaToScalarType(f.data.tensors.dtype());
  sets.test_on_rest = false;  // nothing is tested here
  const double regularization = f.data.regularization >= 0 ? f.data.regularization : 0.001;  // K-RMD's
  NamedProblem result;
  result.name = f.problem;
  const CleaningSets drawn = make_named_cleaning_sets(sets);
  result.digest = data_digest(
      {drawn.train.features.dense, drawn.train.labels, drawn.valid.features.dense, drawn.valid.labels},
      {drawn.train.features.columns(), drawn.classes});
  result.problem = make_linear_cleaning(drawn, regularization, f.data.tensors).problem;
  if (f.data.weight_decay != 0) {
    result.problem = std::make_unique<WithWeightDecay>(std::move(result.problem), f.data.weight_decay);
  }
  result.inner_rate = 1 / start_curvature(*result.problem, f.data.seed);
  result.convex = regularization > 0;
  return result;
}

NamedProblem make_supernet(const CLI::App& command, const ProblemFlags& f) {
  refuse(command, f,
         {"--train-features", "--train-labels", "--valid-features", "--valid-labels", "--regularization",
          "--bias"},
         "hyper-cleaning");
  refuse(command, f, options_of_named_data(), "hyper-cleaning");
  nas::SyntheticSupernet options = f.supernet;
  if (command.count("--cells") > 0 && options.cells < 1) {
    throw std::invalid_argument(fmt::format("--cells {}: must be at least 1", options.cells));
  }
  if (command.count("--weight-decay") > 0) options.weight_decay = f.data.weight_decay;
  options.seed = f.data.seed;
  options.tensors = f.data.tensors;
  return nas::make_synthetic_supernet(options);
}

}  // namespace

NamedProblem make_problem(const CLI::App& command, const ProblemFlags& f) {
  if (f.problem == nas::synthetic_supernet_row().name) return make_supernet(command, f);
  refuse(command, f, {"--space", "--operations", "--channels", "--cells", "--image-size", "--images"},
         nas::synthetic_supernet_row().name.c_str());
  if (f.problem != "hyper-cleaning") refuse(command, f, options_of_named_data(), "hyper-cleaning");
  if (!f.named_data.empty()) return make_named_cleaning(command, f);
  for (const std::string& option : options_of_named_data()) {
    if (command.count(option) > 0) {
      throw std::invalid_argument(fmt::format("{} needs --data", option));
    }
  }
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
  const std::vector<ProblemRow> rows = all_problem_rows();
  const bool known =
      std::any_of(rows.begin(), rows.end(), [&](const ProblemRow& row) { return row.name == f.problem; });
  if (!known) {
    std::vector<std::string> names;
    for (const ProblemRow& row : rows) names.push_back(row.name);
    throw std::invalid_argument(fmt::format("--problem {}: choose from {}",
                                            f.problem.empty() ? "is missing" : f.problem + " is unknown",
                                            fmt::join(names, ", ")));
  }
  if (f.problem != "hyper-cleaning") {
    refuse(command, f, {"--train-features", "--regularization", "--bias"}, "hyper-cleaning");
  }
  return bilevel::make_problem(f.problem, f.data);
}

void set_problem_defaults(const CLI::App& command, const NamedProblem& problem, AlgorithmFlags& flags) {
  InnerOptions& inner = flags.settings.inner;
  OuterOptions& outer = flags.settings.outer;
  const AlgorithmSettings defaults = default_settings(problem, find_algorithm(flags.algorithm));
  if (command.count("--outer-optimizer") == 0 && command.count("--outer-rate") == 0) {
    outer.optimizer = defaults.outer.optimizer;
    outer.rate = defaults.outer.rate;
  }
  if (command.count("--inner-steps") == 0) inner.steps = defaults.inner.steps;
  if (command.count("--joint-rate") == 0) flags.settings.joint_rate = defaults.joint_rate;
  if (command.count("--inner-rate") == 0) {
    inner.rate = defaults.inner.rate;
  } else if (problem.problem->inner_rate(problem.problem->initial_outer(0)).defined()) {
    throw std::invalid_argument(fmt::format(
        "--inner-rate: problem {} learns its rate, which is part of x; leave it out", problem.name));
  }
  set_fixed_ratio_defaults(command, *problem.problem, defaults.outer.rate, flags);
  finish_algorithm_options(command, flags);
}

}  // namespace bilevel::cli
