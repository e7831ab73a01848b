#include "bilevel/jobs/problem_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "bilevel/check/default_settings.h"
#include "bilevel/clean/clean.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/data/sha256.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/data_digest.h"
#include "bilevel/problems/cleaning_model.h"

namespace bilevel {

namespace {

constexpr const char* cleaning = "hyper-cleaning";

}  // namespace

const Fields<ProblemChoice>& ProblemChoice::fields() {
  static const Fields<ProblemChoice> table = [] {
    using O = ProblemChoice;
    const std::string supernet = nas::synthetic_supernet_row().name;
    Fields<O> f;
    f.add(
         "problem", [](O & o) -> auto& { return o.problem; }, "problem; `bilevel list` shows them")
        .first();
    f.add(
         "seed", [](O & o) -> auto& { return o.data.seed; },
         "random seed for the synthetic data, the starting points and all sampling")
        .first();
    f.add(
         "weight_decay", [](O & o) -> auto& { return o.data.weight_decay; },
         "add decay/2 |w|^2 to the inner loss; 0, on supernet 0.0005")
        .in(at_least(0))
        .by_rule();
    f.heading("your own data (hyper-cleaning)", DataSource::own_files);
    f.add(
         "train_features", [](O & o) -> auto& { return o.data.train_features; },
         "training features, a matrix as .npy")
        .is(FieldKind::place)
        .of(cleaning);
    f.add(
         "train_labels", [](O & o) -> auto& { return o.data.train_labels; },
         "training labels, integers as .npy")
        .is(FieldKind::place)
        .of(cleaning);
    f.add(
         "valid_features", [](O & o) -> auto& { return o.data.valid_features; },
         "validation features, a matrix as .npy")
        .is(FieldKind::place)
        .of(cleaning);
    f.add(
         "valid_labels", [](O & o) -> auto& { return o.data.valid_labels; },
         "validation labels, integers as .npy")
        .is(FieldKind::place)
        .of(cleaning);
    f.add(
         "regularization", [](O & o) -> auto& { return o.data.regularization; },
         "strength of the penalty on |W|^2; default with files: 0.001")
        .in(at_least(0))
        .by_rule()
        .of(cleaning);
    f.add(
         "bias", [](O & o) -> auto& { return o.data.bias; },
         "append a column of ones, regularised like the rest")
        .of(cleaning);
    f.heading("a named image set with noise added (hyper-cleaning)", DataSource::named_set);
    f.add(
         "data", [](O & o) -> auto& { return o.named_data; },
         "named set: mnist or fashion-mnist, with a column of ones")
        .is(FieldKind::place)
        .of(cleaning);
    f.add(
         "data_dir", [](O & o) -> auto& { return o.named.folder; },
         "folder of the named data sets, fetched or unpacked")
        .is(FieldKind::place)
        .from_environment("BILEVEL_DATA");
    f.add(
         "corruption", [](O & o) -> auto& { return o.named.corruption; },
         "probability that a training label is replaced")
        .in(at_least(0, 1))
        .of(cleaning);
    f.add(
         "train_size", [](O & o) -> auto& { return o.named.train; },
         "number of training examples, class-balanced")
        .in(at_least(0, bounds::examples))
        .of(cleaning);
    f.add(
         "valid_size", [](O & o) -> auto& { return o.named.valid; },
         "number of validation examples, class-balanced")
        .in(at_least(0, bounds::examples))
        .of(cleaning);
    f.heading("network of architecture search (supernet)");
    f.add(
         "space", [](O & o) -> auto& { return o.supernet.space; }, "search space of the network")
        .one_of(nas::space_names())
        .of(supernet);
    f.add(
         "operations", [](O & o) -> auto& { return o.supernet.operations; },
         "use only these operations of the space, separated by commas; default: all")
        .of(supernet);
    f.add(
         "channels", [](O & o) -> auto& { return o.supernet.channels; }, "channels of the first stage")
        .in(at_least(0, bounds::width))
        .of(supernet);
    f.add(
         "cells", [](O & o) -> auto& { return o.supernet.cells; },
         "number of cells: for each stage in nasbench201 (1), in total in the others (3)")
        .in(at_least(0, bounds::depth))
        .by_rule()
        .of(supernet);
    f.add(
         "image_size", [](O & o) -> auto& { return o.supernet.image_size; }, "height and width of the images")
        .in(at_least(0, bounds::side))
        .of(supernet);
    f.add(
         "images", [](O & o) -> auto& { return o.supernet.images; },
         "number of images for training, and as many for validation")
        .in(at_least(1, bounds::width))
        .of(supernet);
    return f;
  }();
  return table;
}

std::vector<ProblemRow> all_problem_rows() {
  std::vector<ProblemRow> rows = problem_rows();
  rows.push_back(nas::synthetic_supernet_row());
  return rows;
}

namespace {

// An option that would be ignored is an error: its user believes it did something.
void refuse_other_problems(const OptionsView& options, const std::string& problem) {
  for (const Field& field : ProblemChoice::fields().rows()) {
    if (field.owner.empty() || field.owner == problem || !options.is_given(options.at(field.name))) continue;
    throw OptionError(
        fmt::format("problem {} does not take {}: only {} does", problem, named(field.name), field.owner));
  }
}

// The problem's own that were given; where named sets are may be given to any.
std::vector<std::string> given_to_problem(const OptionsView& options, DataSource source) {
  std::vector<std::string> names = options.given_about(source);
  std::erase_if(names, [&](const std::string& name) { return options.at(name).owner.empty(); });
  return names;
}

// The same problem as `clean` works on with a set's name.
NamedProblem make_named_cleaning(const ProblemChoice& choice) {
  NamedCleaningOptions sets = choice.named;
  sets.set = choice.named_data;
  sets.seed = choice.data.seed;
  sets.dtype = c10::typeMetaToScalarType(choice.data.tensors.dtype());
  sets.test_on_rest = false;  // nothing is tested here
  const double regularization =
      choice.data.regularization >= 0 ? choice.data.regularization : 0.001;  // K-RMD's
  NamedProblem result;
  result.name = choice.problem;
  const CleaningSets drawn = make_named_cleaning_sets(sets);
  result.digest = data_digest(
      {drawn.train.features.dense, drawn.train.labels, drawn.valid.features.dense, drawn.valid.labels},
      {drawn.train.features.columns(), drawn.classes});
  result.problem = make_linear_cleaning(drawn, regularization, choice.data.tensors).problem;
  if (choice.data.weight_decay != 0) {
    result.problem = std::make_unique<WithWeightDecay>(std::move(result.problem), choice.data.weight_decay);
  }
  result.inner_rate = 1 / start_curvature(*result.problem, choice.data.seed);
  result.convex = regularization > 0;
  return result;
}

NamedProblem make_supernet(ProblemChoice& choice, const Given& given) {
  nas::SyntheticSupernet& network = choice.supernet;
  if (given(network.cells) && network.cells < 1) {
    throw OptionError(
        fmt::format("{}: must be at least 1", named("cells", fmt::format("{}", network.cells))));
  }
  if (given(choice.data.weight_decay)) {
    network.weight_decay = choice.data.weight_decay;
  } else {
    choice.data.weight_decay = network.weight_decay;  // what is in use, for config.json
  }
  network.seed = choice.data.seed;
  network.tensors = choice.data.tensors;
  return nas::make_synthetic_supernet(network);
}

void require_known(const std::string& problem) {
  std::vector<std::string> names;
  for (const ProblemRow& row : all_problem_rows()) names.push_back(row.name);
  if (std::find(names.begin(), names.end(), problem) != names.end()) return;
  throw OptionError(fmt::format(
      "{}: choose from {}", problem.empty() ? named("problem") + " is missing" : named("problem", problem),
      fmt::join(names, ", ")));
}

void require_whole_files(const ProblemChoice& choice) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"train_features", choice.data.train_features},
      {"train_labels", choice.data.train_labels},
      {"valid_features", choice.data.valid_features},
      {"valid_labels", choice.data.valid_labels}};
  std::vector<std::string> missing, names;
  for (const auto& [name, path] : all) {
    names.push_back(named(name));
    if (path.empty()) missing.push_back(named(name));
  }
  if (missing.empty() || missing.size() == all.size()) return;
  throw OptionError(
      fmt::format("{} missing: your own data need {}", fmt::join(missing, " and "), fmt::join(names, ", ")));
}

// What an own problem cannot be told by an option; a seed and a weight decay it can.
NamedProblem make_own(const OptionsView& options, ProblemChoice& choice) {
  std::vector<std::string> fields = {"problem", "data_dir", "device", "dtype"};
  for (const Field& field : ProblemChoice::fields().rows()) {
    if (!field.owner.empty()) fields.push_back(field.name);
  }
  for (const std::string& name : fields) {
    const Field* field = options.find(name);
    if (field != nullptr && options.is_given(*field)) {
      throw OptionError(
          fmt::format("a user-defined problem does not take {}: its losses have their own data, and its x "
                      "and w their own types",
                      named(name)));
    }
  }
  NamedProblem result = choice.own();
  choice.problem = result.name;
  if (choice.data.weight_decay != 0) {
    result.problem = std::make_unique<WithWeightDecay>(std::move(result.problem), choice.data.weight_decay);
  }
  return result;
}

}  // namespace

NamedProblem make_problem(const OptionsView& options, ProblemChoice& choice, const Given& given) {
  if (choice.own) return make_own(options, choice);
  require_known(choice.problem);
  refuse_other_problems(options, choice.problem);
  if (choice.problem == nas::synthetic_supernet_row().name) return make_supernet(choice, given);
  if (!choice.named_data.empty()) {
    for (const std::string& name : given_to_problem(options, DataSource::own_files)) {
      if (options.at(name).kind != FieldKind::place) continue;
      throw OptionError(fmt::format("{} with {}: give a named set or your own files, not both",
                                    named("data", choice.named_data), named(name)));
    }
    return make_named_cleaning(choice);
  }
  if (const std::vector<std::string> of_named = given_to_problem(options, DataSource::named_set);
      !of_named.empty()) {
    throw OptionError(fmt::format("{} needs {}", named(of_named.front()), named("data")));
  }
  require_whole_files(choice);
  return bilevel::make_problem(choice.problem, choice.data);
}

std::vector<std::string> digests_of(const NamedProblem& problem, const ProblemChoice& choice) {
  std::vector<std::string> digests;
  if (!problem.digest.empty()) digests.push_back(problem.digest);
  for (const std::string& path : {choice.data.train_features, choice.data.train_labels,
                                  choice.data.valid_features, choice.data.valid_labels}) {
    if (!path.empty()) digests.push_back(sha256_of_file(path));
  }
  return digests;
}

void set_problem_defaults(const Given& given, const NamedProblem& problem, AlgorithmChoice& choice) {
  AlgorithmSettings& s = choice.settings;
  const AlgorithmSettings defaults = default_settings(problem, find_algorithm(choice.algorithm));
  if (!given(s.outer.optimizer) && !given(s.outer.rate)) {
    s.outer.optimizer = defaults.outer.optimizer;
    s.outer.rate = defaults.outer.rate;
  }
  if (!given(s.inner.steps)) s.inner.steps = defaults.inner.steps;
  if (!given(s.joint_rate)) s.joint_rate = defaults.joint_rate;
  if (!given(s.inner.rate)) {
    s.inner.rate = defaults.inner.rate;
  } else if (problem.problem->inner_rate(problem.problem->initial_outer(0)).defined()) {
    throw OptionError(fmt::format("{}: problem {} learns its rate, which is part of x; leave it out",
                                  named("inner_rate"), problem.name));
  }
  set_fixed_ratio_defaults(given, *problem.problem, defaults.outer.rate, choice);
  finish(choice);
}

}  // namespace bilevel
