// `bilevel tune`: one regulariser per feature for (sparse) softmax regression, found on validation examples.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/algorithms/first_rate.h"
#include "bilevel/core/errors.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/data/newsgroups_path.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/jobs/data_digest.h"
#include "bilevel/problems/regularizer_search.h"
#include "bilevel/run/stop_signal.h"
#include "bilevel/tables/scaled_table.h"
#include "cli/algorithm_options.h"
#include "cli/auto_method.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/run_problem.h"
#include "cli/solve_run.h"
#include "cli/table_choice.h"
#include "cli/tune_table.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common{.dtype = "float"};
  AlgorithmFlags algorithm;
  std::string data, data_dir, weights = "unit";
  RegularizerFileOptions files;
  int64_t top = 20;
  uint64_t seed = 0;
  RunFlags run;
  AutoFlags automatic;
  TableFlags table;
};

constexpr const char *by_held_out = "held-out", *by_algorithm = "algorithm";

// ---- options ----

void add_options(CLI::App& command, Options& o) {
  auto* files = command.add_option_group("files");
  files->add_option("--train", o.files.train.features,
                    "training examples: svmlight, CSV or TSV with labels inside, or CSV, NPY or IDX with "
                    "--train-labels");
  files->add_option("--train-labels", o.files.train.labels, "any whole numbers, one per training example");
  files->add_option("--valid", o.files.valid.features,
                    "validation examples; a part of the training examples if left out");
  files->add_option("--valid-labels", o.files.valid.labels, "of --valid");
  files->add_option("--test", o.files.test.features, "test examples, which nothing is tuned on");
  files->add_option("--test-labels", o.files.test.labels, "of --test");
  files
      ->add_option("--label-column", o.files.reading.label_column,
                   "of a table: first, last, a name of its header, or a position from 0")
      ->capture_default_str();
  files->add_option("--features", o.files.feature_names,
                    "names of the features, one a line; else those of a table's header");
  files->add_option("--valid-part", o.files.valid_part, "of the training examples, without --valid")
      ->capture_default_str();
  files->add_flag("--bias", o.files.bias, "append a column of ones with a regulariser of its own");

  auto* named = command.add_option_group("named data");
  named->add_option("--data", o.data, "newsgroups")->check(CLI::IsMember({"newsgroups"}));
  named->add_option("--data-dir", o.data_dir, "20 Newsgroups by date: its folder or a tar of it");
  named->add_option("--weights", o.weights, "of words: counts, unit (posts of norm 1) or tf-idf")
      ->check(CLI::IsMember({"counts", "unit", "tf-idf"}))
      ->capture_default_str();

  add_table_options(command, o.table, by_held_out, by_algorithm);
  add_algorithm_options(command, o.algorithm);
  add_auto_options(command, o.automatic);
  command.add_option("--top", o.top, "how many of the most and the least regularised features to show")
      ->check(CLI::Range(int64_t{0}, int64_t{1000000}))
      ->capture_default_str();
  command.add_option("--seed", o.seed, "of the split and of the batches")->capture_default_str();
  add_run_options(command, o.run);
  add_common_options(command, o.common);
}

void check_choice(const CLI::App& command, const Options& o) {
  const bool files = command.count("--train") > 0;
  if (files == !o.data.empty()) {
    throw std::invalid_argument(files ? "--train and --data newsgroups exclude each other"
                                      : "there is no data: give --train FILE or --data newsgroups");
  }
  for (const char* option : {"--train-labels", "--valid", "--valid-labels", "--test", "--test-labels",
                             "--label-column", "--features", "--bias"}) {
    if (!files && command.count(option) > 0) {
      throw std::invalid_argument(fmt::format("{} belongs to --train, not to --data {}", option, o.data));
    }
  }
  for (const char* option : {"--data-dir", "--weights"}) {
    if (files && command.count(option) > 0) {
      throw std::invalid_argument(fmt::format("{} belongs to --data newsgroups, not to --train", option));
    }
  }
  for (const std::string set : {"--valid", "--test"}) {
    if (command.count(set + "-labels") > 0 && command.count(set) == 0) {
      throw std::invalid_argument(fmt::format("{}-labels without {}: give the examples too", set, set));
    }
  }
  if (command.count("--valid") > 0 && command.count("--valid-part") > 0) {
    throw std::invalid_argument("--valid-part divides the training file: leave it out with --valid");
  }
  if (!(o.files.valid_part > 0) || !(o.files.valid_part < 1)) {
    throw std::invalid_argument(
        fmt::format("--valid-part {}: must be above 0 and below 1", o.files.valid_part));
  }
}

// stocBiO's settings on 20 Newsgroups; elsewhere the inner rate comes from the curvature and the outer rate,
// 0 until then, from the first hypergradient.
void set_defaults(const CLI::App& command, Options& o) {
  AlgorithmFlags& f = o.algorithm;
  const auto unless_given = [&](const char* option, auto& place, auto value) {
    if (command.count(option) == 0) place = value;
  };
  unless_given("--inner-steps", f.settings.inner.steps, int64_t{10});
  unless_given("--iterations", f.solve.iterations, int64_t{100});
  unless_given("--inner-rate", f.settings.inner.rate, o.data.empty() ? 0.0 : 100.0);
  unless_given("--outer-optimizer", f.settings.outer.optimizer, std::string("sgd"));
  const double outer = f.settings.outer.optimizer == "adam" ? 0.05 : o.data.empty() ? 0.0 : 100.0;
  unless_given("--outer-rate", f.settings.outer.rate, outer);
  f.solve.seed = o.seed;
}

RegularizerSets read(Options& o, at::ScalarType dtype) {
  if (o.data.empty()) {
    o.files.reading.dtype = dtype;
    o.files.seed = o.seed;
    return read_regularizer_sets(o.files);
  }
  NewsgroupsOptions words{.dtype = dtype};
  words.weights = o.weights == "counts"   ? WordWeights::counts
                  : o.weights == "tf-idf" ? WordWeights::tf_idf
                                          : WordWeights::unit_counts;
  return read_newsgroup_sets(newsgroups_path(o.data_dir), words, o.files.valid_part, o.seed);
}

// ---- the work ----

// Regularisers, and the model that training with them gives.
struct Model {
  Tensor x, w;
  std::map<std::string, double> metrics;
  double valid_loss() const { return metrics.at("valid_loss"); }
};

struct Tuned {
  SolveSummary summary;
  BestPoint best;              // of the search, by the validation loss along it
  Model untuned;               // x = 0
  Model model;                 // what is returned: no worse than x = 0 on the validation examples
  bool kept_untuned = false;   // the search did not beat x = 0
  double searched_loss = 0;    // on the validation examples, of the better of the search's best and last x
  int64_t best_iteration = 0;  // of that one
  std::vector<int64_t> order;  // of the features, the most regularised first
};

constexpr int64_t first_rate_steps = 1000;
constexpr double first_step = 0.5;  // of the regulariser that moves most: exp(x) changes by a factor of 1.6

// Thrown out of a training that a signal ended: what it was for is repeated when the run goes on.
struct Interrupted {};

// The model that these regularisers give, from the first w.
Trajectory train(Oracle& oracle, const AlgorithmFlags& flags, const Tensor& x, int64_t steps) {
  InnerRun run;
  run.options = flags.settings.inner;
  run.options.steps = steps;
  run.measure_gradient = false;
  run.batches = [](int64_t) {
    if (stop_requested()) throw Interrupted();
    return Batch();
  };
  return run_inner(oracle, x, oracle.problem().initial_inner(flags.solve.seed), run);
}

Model trained_model(Oracle& oracle, const AlgorithmFlags& flags, const Tensor& x, int64_t steps) {
  const Tensor w = train(oracle, flags, x, steps).final.w;
  return {.x = x, .w = w, .metrics = oracle.problem().metrics(w, x)};
}

double first_rate(Oracle& oracle, const AlgorithmFlags& flags) {
  const Tensor x = oracle.problem().initial_outer(flags.solve.seed);
  const double rate = first_outer_rate(oracle, x, train(oracle, flags, x, first_rate_steps), first_step);
  return rate > 0 ? rate : 1;
}

std::vector<int64_t> by_regularizer(const Tensor& x) {
  const Tensor values = x.detach().to(at::kDouble).contiguous();
  const double* value = values.data_ptr<double>();
  std::vector<int64_t> order(static_cast<size_t>(values.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value[a] > value[b]; });
  return order;
}

std::string digest_of(const RegularizerSets& sets) {
  std::vector<Tensor> contents;
  for (const LabelledRows* set : {&sets.train, &sets.valid, sets.test ? &*sets.test : nullptr}) {
    if (set == nullptr) continue;
    contents.push_back(set->labels);
    for (const Tensor& part : contents_of(set->features)) contents.push_back(part);
  }
  return data_digest(contents, {sets.train.features.features(), sets.classes});
}

SolveSummary solve_in_folder(const RegularizerSearch& problem, const Options& o, RunFolder& folder,
                             BestPoint& best) {
  const auto checkpoint = load_run(folder, o.run, o.common);
  const auto algorithm = make_algorithm(o.algorithm.algorithm, o.algorithm.settings);
  SolveJob job{.problem = problem,
               .algorithm = *algorithm,
               .options = o.algorithm.solve,
               .run = o.run,
               .common = o.common,
               .command = "tune"};
  job.learned_name = "regularisers";
  job.learned = [](const Tensor& x) { return x.exp(); };
  job.hooks = follow(best, {});
  job.put = [&best](Checkpoint& now) { put_best(now, best); };
  job.take = [&best](const Checkpoint& then) { best = take_best(then, c10::kCPU); };
  job.data = digest_of(problem.sets());
  return solve_in_folder(job, folder, checkpoint);
}

// Trains both models from the first w with the same number of steps: T if every iteration of the search
// starts from the first w, T per iteration otherwise. The searched model is returned only if it beats x = 0,
// that is no search at all, on the validation examples.
void choose_model(const RegularizerSearch& problem, const AlgorithmFlags& flags, Tuned& tuned) {
  Oracle oracle(problem);
  const AlgorithmState& last = tuned.summary.state;
  const int64_t turns = find_algorithm(flags.algorithm).family == Family::cold ? 1 : last.iteration;
  const int64_t steps =
      std::max({last.inner.step, flags.settings.inner.steps, turns * flags.settings.inner.steps});
  tuned.untuned = trained_model(oracle, flags, problem.initial_outer(flags.solve.seed), steps);
  tuned.searched_loss = std::numeric_limits<double>::quiet_NaN();
  const auto consider = [&](const Tensor& x, int64_t iteration) {
    try {
      const Model model = trained_model(oracle, flags, x, steps);
      if (!std::isfinite(model.valid_loss()) || tuned.searched_loss <= model.valid_loss()) return;
      tuned.model = model;
      tuned.searched_loss = model.valid_loss();
      tuned.best_iteration = iteration;
    } catch (const NotFiniteError&) {  // no candidate
    }
  };
  // The loss along the search is that of a w that may lag behind x, so both points get their training.
  consider(last.x, last.iteration);
  if (!tuned.best.x.equal(last.x)) consider(tuned.best.x, tuned.best.iteration);
  tuned.kept_untuned = !(tuned.searched_loss < tuned.untuned.valid_loss());
  if (tuned.kept_untuned) tuned.model = tuned.untuned;
}

// Only the summary where it was interrupted or ended badly.
Tuned tune(const RegularizerSearch& problem, Options& o, RunFolder& folder, Progress& progress) {
  Tuned tuned;
  AlgorithmFlags& flags = o.algorithm;
  Oracle oracle(problem);
  tuned.summary.algorithm = flags.algorithm;
  try {
    progress("tune: the outer rate");
    if (flags.settings.outer.rate == 0) flags.settings.outer.rate = first_rate(oracle, flags);
    flags.solve.settings = flags.settings;
    tuned.summary = solve_in_folder(problem, o, folder, tuned.best);
    if (!has_answer(tuned.summary)) return tuned;
    progress("tune: the models");
    choose_model(problem, flags, tuned);
  } catch (const Interrupted&) {
    tuned.summary.reason = StopReason::interrupted;
    return tuned;
  }
  tuned.order = by_regularizer(tuned.model.x);
  progress.clear();
  return tuned;
}

// ---- output ----

Json feature_json(const RegularizerSets& sets, const Tensor& x, int64_t j) {
  const auto value = x[j].item<double>();
  return {{"name", sets.feature_names[static_cast<size_t>(j)]},
          {"column", j},
          {"x", number(value)},
          {"regulariser", number(std::exp(value))}};
}

Json report_json(const RegularizerSearch& problem, const Options& o, const Tuned& t,
                 const std::string& folder) {
  const RegularizerSets& sets = problem.sets();
  Json out = {{"features", problem.layout().features},
              {"nonzeros", sets.nonzeros},
              {"classes", sets.classes},
              {"class_names", sets.class_names},
              {"train_examples", sets.train.size()},
              {"valid_examples", sets.valid.size()},
              {"test_examples", sets.test ? sets.test->size() : 0},
              {"inner_rate", problem.rate()},
              {"outer_rate", o.algorithm.settings.outer.rate},
              {"outer_optimizer", o.algorithm.settings.outer.optimizer},
              {"largest_x", problem.largest_outer()}};
  for (const char* set : {"test", "valid", "train"}) {
    for (const char* what : {"accuracy", "loss"}) {
      const std::string key = fmt::format("{}_{}", set, what);
      const auto value = [&](const std::map<std::string, double>& from) {
        return from.count(key) > 0 ? number(from.at(key)) : Json(nullptr);
      };
      out[key] = value(t.model.metrics);
      out["baseline_" + key] = value(t.untuned.metrics);
    }
  }
  out["returned"] = t.kept_untuned ? "untuned" : "tuned";
  out["best_iteration"] = t.best_iteration;
  out["searched_valid_loss"] = number(t.searched_loss);
  const Tensor& x = t.model.x;
  const auto count = static_cast<size_t>(std::min<int64_t>(o.top, problem.layout().features));
  out["most_regularised"] = out["least_regularised"] = Json::array();
  for (size_t i = 0; i < count; ++i) {
    out["most_regularised"].push_back(feature_json(sets, x, t.order[i]));
    out["least_regularised"].push_back(feature_json(sets, x, t.order[t.order.size() - 1 - i]));
  }
  out.update(solve_json(t.summary));
  add_choice(o.automatic, out);
  out["folder"] = folder;
  return out;
}

void print_features(const char* title, const Json& rows) {
  if (rows.empty()) return;
  fmt::print("\n{}\n", title);
  for (const Json& row : rows) {
    fmt::print("  {:<32} x = {:>8.3f}   exp(x) = {:.4g}\n", row.at("name").get<std::string>(),
               row.at("x").get<double>(), row.at("regulariser").get<double>());
  }
}

std::string kept_untuned_text(const Json& r) {
  const Json& searched = r.at("searched_valid_loss");
  return fmt::format(
      "The search did not beat x = 0 on the validation examples: its best regularisers (iteration {}) give a "
      "loss of {}, x = 0 gives {:.4f}. The untuned model is returned. Take features of similar scales, a "
      "lower "
      "--outer-rate or more --inner-steps.",
      r.at("best_iteration").get<int64_t>(),
      searched.is_null() ? std::string("no finite number") : fmt::format("{:.4f}", searched.get<double>()),
      r.at("baseline_valid_loss").get<double>());
}

void print_text(const Json& r) {
  fmt::print(
      "{} training, {} validation and {} test examples; {} features, {} classes, {} training non-zeros\n",
      r.at("train_examples").get<int64_t>(), r.at("valid_examples").get<int64_t>(),
      r.at("test_examples").get<int64_t>(), r.at("features").get<int64_t>(), r.at("classes").get<int64_t>(),
      r.at("nonzeros").get<int64_t>());
  const Json& counts = r.at("counts");
  fmt::print(
      "{}: {} iterations in {:.1f} s ({} inner and {} outer gradients, {} Hessian and {} cross "
      "products); inner rate {:.4g}, outer rate {:.4g} of {}\n\n",
      r.at("algorithm").get<std::string>(), r.at("iterations").get<int64_t>(), r.at("seconds").get<double>(),
      counts.at("inner_gradient").get<int64_t>(), counts.at("outer_gradient").get<int64_t>(),
      counts.at("hessian").get<int64_t>(), counts.at("cross").get<int64_t>(),
      r.at("inner_rate").get<double>(), r.at("outer_rate").get<double>(),
      r.at("outer_optimizer").get<std::string>());
  fmt::print("{:<12}{:>24}{:>24}\n{:<12}{:>12}{:>12}{:>12}{:>12}\n", "", "untuned (x = 0)", "one per feature",
             "", "loss", "accuracy", "loss", "accuracy");
  for (const std::string set : {"train", "valid", "test"}) {
    if (r.at(set + "_loss").is_null()) continue;
    fmt::print("{:<12}{:>12.4f}{:>12.2f}{:>12.4f}{:>12.2f}\n", set,
               r.at("baseline_" + set + "_loss").get<double>(),
               r.at("baseline_" + set + "_accuracy").get<double>(), r.at(set + "_loss").get<double>(),
               r.at(set + "_accuracy").get<double>());
  }
  if (r.at("returned") == "untuned") fmt::print("\n{}\n", kept_untuned_text(r));
  print_features("most regularised", r.at("most_regularised"));
  print_features("least regularised", r.at("least_regularised"));
}

std::string quoted(const std::string& name) {
  if (name.find_first_of(",\"\n") == std::string::npos) return name;
  std::string result = "\"";
  for (const char c : name) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

void save(const RegularizerSearch& problem, const Tuned& t, const std::string& folder) {
  const std::filesystem::path path(folder);
  const Tensor x = t.model.x, matrix = problem.layout().matrix(t.model.w);
  const Tensor norms = matrix.norm(2, 1);
  write_npy(path / "regularisers.npy", x.exp());
  write_npy(path / "model.npy", matrix);
  write_file(path / "regularisers.csv", [&](std::ostream& to) {
    to << "feature,x,regulariser,weight_norm\n";
    for (const int64_t j : t.order) {
      const auto value = x[j].item<double>();
      to << fmt::format("{},{:.9g},{:.9g},{:.9g}\n",
                        quoted(problem.sets().feature_names[static_cast<size_t>(j)]), value, std::exp(value),
                        norms[j].item<double>());
    }
  });
}

void work(const CLI::App& command, Options& o, const RegularizerSearch& problem, RunFolder& folder,
          Progress& progress, int& exit_code) {
  const Tuned tuned = tune(problem, o, folder, progress);
  if (!has_answer(tuned.summary)) {
    progress.clear();
    Json json = solve_json(tuned.summary);
    json["folder"] = folder.path();
    exit_code = end_without_answer(command, folder, tuned.summary, json, o.common);
    return;
  }
  Json report = report_json(problem, o, tuned, folder.path());
  measure_choice_at_end(o.automatic, problem, o.algorithm.settings, tuned.summary, o.common, report);
  if (o.common.json) {
    fmt::print("{}\n", report.dump());
    if (tuned.kept_untuned && says(o.common, LogLevel::warning)) {
      fmt::print(stderr, "warning: {}\n", kept_untuned_text(report));
    }
  } else {
    print_text(report);
    print_linear_solves(tuned.summary);
    print_failures(tuned.summary);
  }
  save(problem, tuned, folder.path());  // last: a full disk must not cost the answer
  exit_code = end_solve_run(command, folder, tuned.summary, report);
  if (!o.common.json) {
    fmt::print("\nwritten to {}: regularisers.npy, regularisers.csv, model.npy, summary.json\n",
               folder.path());
  }
}

DiagnosedProblem facts_of(const RegularizerSearch& problem, const Options& o) {
  return {.problem = &problem,
          .name = "tune",
          .inner_steps = o.algorithm.settings.inner.steps,
          .inner_rate = problem.rate(),
          .convex = true,
          .largest_curvature = problem.largest_curvature()};
}

bool wants_table(const CLI::App& command, const Options& o) {
  const bool files = o.data.empty();
  if (!files && o.table.by == by_held_out) {
    throw std::invalid_argument(
        fmt::format("--by held-out with --data {}: it is for tables of one's own; leave it out", o.data));
  }
  if (!means_table(command, o.table, by_held_out, by_algorithm, {"--valid-part", "--bias"}, files)) {
    return false;
  }
  if (command.count("--valid") > 0 && command.count("--folds") > 0) {
    throw std::invalid_argument(
        fmt::format("--folds {} with --valid: rows are held out in folds where there is no validation file; "
                    "leave one of them out",
                    o.table.folds));
  }
  return true;
}

// False: its dense form is too large, and nobody insists.
bool run_table(CLI::App& command, Options& o, int& exit_code) {
  o.files.reading.dtype = c10::typeMetaToScalarType(apply_common_options(o.common).dtype());
  const TableSets sets = read_table_sets(o.files);
  const Features& train = sets.train.features;
  if (!is_small_enough({&train, &sets.valid.features, &sets.test.features}, sets.classes)) {
    if (o.table.by == "auto" && command.count("--folds") == 0 && !o.table.no_standardize) return false;
    throw std::invalid_argument(fmt::format(
        "--by held-out: {} has {} rows of {} columns and {} classes, and it takes sets of at most {} "
        "numbers, by columns and by classes; take --by algorithm",
        o.files.train.features, train.rows(), train.columns(), sets.classes, largest_table));
  }
  run_tune_table(command, {o.common, o.run, o.table, o.top, o.seed}, sets, exit_code);
  return true;
}

void run(CLI::App& command, Options& o, int& exit_code) {
  take_options(command, o.run, o.common);
  if (repeats_finished_run(o.run, o.common)) return;
  keep_earlier_way(command, o.run.resume, by_algorithm);
  check_choice(command, o);
  if (o.common.device != "cpu") {
    throw std::invalid_argument(
        fmt::format("--device {}: the closed forms of softmax regression run on the CPU: take --device cpu",
                    o.common.device));
  }
  if (wants_table(command, o) && run_table(command, o, exit_code)) return;
  set_defaults(command, o);
  const at::ScalarType dtype = c10::typeMetaToScalarType(apply_common_options(o.common).dtype());
  refuse_ignored_accuracy(command, o.automatic, wants_auto(o.algorithm));
  find_algorithm(o.algorithm.algorithm);  // before the reading, which takes a while
  if (command.count("--inner-rate") > 0) require_rate("tune", "inner_rate", o.algorithm.settings.inner.rate);
  if (command.count("--outer-rate") > 0) require_rate("tune", "outer_rate", o.algorithm.settings.outer.rate);
  Progress progress(o.common);
  progress("tune: reading");
  const RegularizerSearch problem(read(o, dtype), o.algorithm.settings.inner.rate);
  o.algorithm.settings.inner.rate = problem.rate();
  if (wants_auto(o.algorithm)) {
    // x is bounded so that plain steps at this rate stay safe: it is not up for choice.
    choose_method(command, facts_of(problem, o), o.algorithm, o.automatic, progress,
                  o.algorithm.settings.inner, true);
  }
  finish_algorithm_options(command, o.algorithm);
  // What is wrong by itself is said before there is a run.
  o.algorithm.solve.validate();
  AlgorithmSettings settings = o.algorithm.settings;
  if (settings.outer.rate == 0) settings.outer.rate = 1;
  (void)make_algorithm(o.algorithm.algorithm, settings);
  const StopSignal on_signal;  // of all that follows, the solving being a part of it
  RunFolder folder = open_run(command, o.run, o.seed);
  work_in(folder, [&] { work(command, o, problem, folder, progress, exit_code); });
}

}  // namespace

RunProblem tune_problem(const std::string& folder) {
  CLI::App command("", "tune");
  Options o;
  add_options(command, o);
  o.run.config = folder + "/config.json";
  take_options(command, o.run, o.common);
  check_choice(command, o);
  if (wants_table(command, o) && !std::filesystem::exists(folder + "/checkpoint")) {
    throw std::invalid_argument(fmt::format(
        "{}: a run of `bilevel tune --by held-out` solves its problems to the end and keeps no point to "
        "diagnose; make one with --by algorithm",
        folder));
  }
  set_defaults(command, o);
  const at::ScalarType dtype = c10::typeMetaToScalarType(apply_common_options(o.common).dtype());
  const auto problem = std::make_shared<RegularizerSearch>(read(o, dtype), o.algorithm.settings.inner.rate);
  InnerOptions inner;
  inner.rate = problem->rate();
  return {.owner = problem,
          .facts = facts_of(*problem, o),
          .inner = inner,
          .rate_is_given = true,
          .seed = o.seed};
}

void add_tune_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("tune", "Find one regulariser per feature for softmax regression on your data");
  command->footer(
      "Examples:\n"
      "  bilevel tune --train train.svm --test test.svm --features words.txt --out tuned\n"
      "  bilevel tune --train x.npy --train-labels y.npy --valid-part 0.3\n"
      "  bilevel tune --data newsgroups --data-dir 20news-bydate.tar.xz\n"
      "  bilevel tune --resume tuned");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options, &exit_code] { run(*command, *options, exit_code); });
}

}  // namespace bilevel::cli
