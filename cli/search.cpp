// `bilevel search`: a network for one's images, by differentiable architecture search.

#include "bilevel/nas/search.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/core/errors.h"
#include "bilevel/data/write_file.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/random_search.h"
#include "bilevel/nas/search_checkpoint.h"
#include "bilevel/nas/search_images.h"
#include "bilevel/run/machine.h"
#include "bilevel/run/stop_signal.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/image_options.h"
#include "cli/out_folder.h"
#include "cli/run_folder.h"
#include "cli/search_output.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common{.dtype = "float"};
  std::string space = "nasbench201";
  std::vector<std::string> operations;
  nas::SupernetOptions network;
  ImageDataOptions data;
  SearchSplitOptions split;
  AugmentOptions augment;
  std::string method = "idarts";
  std::string mixed, series_rate;
  nas::SearchOptions given;  // what the options below wrote to
  std::vector<std::pair<std::string, std::function<void(nas::SearchOptions&)>>>
      settings;  // and how to take it over
  std::string benchmark, out, resume;
};

// An option whose default depends on the space and the method: it counts only where it was given.
template <typename Field>
CLI::Option* add_setting(CLI::App& group, Options& o, const std::string& name, Field field,
                         const std::string& help) {
  o.settings.emplace_back(name, [&o, field](nas::SearchOptions& target) { field(target) = field(o.given); });
  return group.add_option(name, field(o.given), help);
}

void add_options(CLI::App& command, Options& o) {
  auto* space = command.add_option_group("space and supernet");
  space->add_option("--space", o.space, "nasbench201, nasbench1shot1-1, -2, -3 or darts")
      ->capture_default_str();
  space->add_option("--operations", o.operations, "only these of the space's operations, with commas")
      ->delimiter(',');
  space->add_option("--channels", o.network.channels, "of the first stage")->capture_default_str();
  space->add_option("--cells", o.network.cells,
                    "nasbench201: a stage (5); others: in all (9 in nasbench1shot1, 8 in darts)");
  add_image_options(command, o.data, o.augment);
  auto* split = command.add_option_group("split");
  split->add_option("--split", o.split.file,
                    "file of positions for training and validation, as NAS-Bench-201's");
  split->add_option("--train-size", o.split.train_size,
                    "images for the weights and as many for alpha; 0 = half of the training set each");

  using S = nas::SearchOptions;
  auto* method = command.add_option_group("method; defaults are the papers' for the space");
  method
      ->add_option("--method", o.method,
                   "idarts, darts, darts-first-order, truncated, cg, gdas, random-sharing, random")
      ->capture_default_str();
  add_setting(
      *method, o, "--epochs", [](S & s) -> auto& { return s.epochs; }, "passes over the training images");
  add_setting(
      *method, o, "--warmup-epochs", [](S & s) -> auto& { return s.warmup_epochs; },
      "first epochs in which alpha rests");
  add_setting(
      *method, o, "--batch", [](S & s) -> auto& { return s.batch; }, "images of a batch");
  add_setting(
      *method, o, "--alpha-steps", [](S & s) -> auto& { return s.alpha_steps; },
      "steps of alpha in an epoch; left out: one pass over the training images");
  add_setting(
      *method, o, "--terms", [](S & s) -> auto& { return s.hypergradient.terms; },
      "K: Hessian products of idarts, steps of cg");
  add_setting(
      *method, o, "--truncate", [](S & s) -> auto& { return s.hypergradient.truncate; },
      "steps that truncated goes back through");
  add_setting(
      *method, o, "--curvature", [](S & s) -> auto& { return s.hypergradient.curvature.kind; },
      "hessian or gauss-newton, of idarts and cg")
      ->check(CLI::IsMember({"hessian", "gauss-newton"}));
  add_setting(
      *method, o, "--damping", [](S & s) -> auto& { return s.hypergradient.curvature.damping; },
      "rho in H + rho I");
  method->add_option("--mixed", o.mixed, "mixed product: difference (the papers') or exact")
      ->check(CLI::IsMember({"difference", "exact"}));
  method->add_option(
      "--series-rate", o.series_rate,
      "of the Neumann series: a number, or auto = 1 / largest curvature; left out: the weights' rate");
  add_setting(
      *method, o, "--samples", [](S & s) -> auto& { return s.samples; }, "cells that random searches try");
  add_setting(
      *method, o, "--temperature", [](S & s) -> auto& { return s.temperature; }, "of gdas at the start");
  add_setting(
      *method, o, "--final-temperature", [](S & s) -> auto& { return s.final_temperature; },
      "and at the end");

  auto* weights = command.add_option_group("weights");
  add_setting(
      *weights, o, "--inner-steps", [](S & s) -> auto& { return s.inner.steps; },
      "T: weight steps a step of alpha");
  add_setting(
      *weights, o, "--inner-rate", [](S & s) -> auto& { return s.inner.rate; }, "at the start");
  add_setting(
      *weights, o, "--final-rate", [](S & s) -> auto& { return s.final_rate; }, "at the end of the cosine");
  add_setting(
      *weights, o, "--inner-optimizer", [](S & s) -> auto& { return s.inner.optimizer; },
      "gd, heavy-ball, nesterov or adam");
  add_setting(
      *weights, o, "--momentum", [](S & s) -> auto& { return s.inner.momentum; },
      "of heavy-ball and nesterov");
  add_setting(
      *weights, o, "--weight-decay", [](S & s) -> auto& { return s.weight_decay; },
      "part of the training loss");
  add_setting(
      *weights, o, "--inner-clip", [](S & s) -> auto& { return s.inner.clip_norm; },
      "largest norm of a gradient; 0 = no clipping");
  auto* alpha = command.add_option_group("alpha (Adam)");
  add_setting(
      *alpha, o, "--alpha-rate", [](S & s) -> auto& { return s.outer.rate; }, "");
  add_setting(
      *alpha, o, "--alpha-beta1", [](S & s) -> auto& { return s.outer.beta1; }, "");
  add_setting(
      *alpha, o, "--alpha-beta2", [](S & s) -> auto& { return s.outer.beta2; }, "");
  add_setting(
      *alpha, o, "--alpha-decay", [](S & s) -> auto& { return s.outer.preparation.weight_decay; },
      "weight decay of alpha");

  auto* collapse = command.add_option_group("against collapse");
  add_setting(
      *collapse, o, "--stop", [](S & s) -> auto& { return s.stop; },
      "eigenvalue, skips or none: end before a collapse and return the genotype from before it");
  add_setting(
      *collapse, o, "--stop-window", [](S & s) -> auto& { return s.stop_window; },
      "epochs that the eigenvalue is averaged over and compared across");
  add_setting(
      *collapse, o, "--stop-ratio", [](S & s) -> auto& { return s.stop_ratio; },
      "earlier average over the present one that ends the search");
  add_setting(
      *collapse, o, "--most-skips", [](S & s) -> auto& { return s.most_skips; },
      "skip connections that a normal cell may have");
  add_setting(
      *collapse, o, "--select", [](S & s) -> auto& { return s.select; },
      "argmax (largest alpha) or perturbation (what the supernet misses most)");
  add_setting(
      *collapse, o, "--tune-epochs", [](S & s) -> auto& { return s.tune_epochs; },
      "of the weights between two choices of perturbation");
  add_setting(
      *collapse, o, "--eigenvalue-products", [](S & s) -> auto& { return s.eigenvalue_products; },
      "of Lanczos for the dominant eigenvalue in alpha, every epoch; 0 = not measured");

  auto* run = command.add_option_group("run");
  run->add_option("--benchmark", o.benchmark,
                  "table of trained cells (NAS-Bench-201 or -101) for the true accuracies");
  add_setting(
      *run, o, "--score-images", [](S & s) -> auto& { return s.score_images; },
      "validation images that measure the supernet after an epoch; 0 = all");
  add_setting(
      *run, o, "--seed", [](S & s) -> auto& { return s.seed; }, "of everything that is drawn");
  run->add_option("--out", o.out, "folder of the run; left out: runs/search-DATE-SEED");
  run->add_option("--resume", o.resume, "go on with the run in this folder, with its own options");
  add_common_options(command, o.common);
}

nas::SearchOptions search_options(const CLI::App& command, const Options& o, const nas::SearchSpace& space) {
  nas::SearchOptions search = nas::default_search_options(space, o.method);
  for (const auto& [name, take_over] : o.settings) {
    if (command.count(name) > 0) take_over(search);
  }
  if (command.count("--inner-steps") > 0 && o.method == "truncated" && command.count("--truncate") == 0) {
    search.hypergradient.truncate = search.inner.steps;
  }
  if (command.count("--final-rate") == 0) search.final_rate = std::min(search.final_rate, search.inner.rate);
  if (!o.mixed.empty()) search.hypergradient.curvature.difference_mixed = o.mixed == "difference";
  if (o.series_rate == "auto") {
    search.series_rate_auto = true;
  } else if (!o.series_rate.empty()) {
    try {
      size_t read = 0;
      search.hypergradient.series_rate = std::stod(o.series_rate, &read);
      if (read != o.series_rate.size() || !(search.hypergradient.series_rate > 0))
        throw std::invalid_argument("");
    } catch (const std::exception&) {
      throw std::invalid_argument(
          fmt::format("--series-rate {}: give a number above 0, or auto", o.series_rate));
    }
  }
  search.validate();
  return search;
}

// Plain lines in a pipe, a live line on a terminal.
class SearchProgress {
 public:
  explicit SearchProgress(const CommonOptions& common)
      : live_(common), lines_(!common.quiet && isatty(STDERR_FILENO) == 0) {}
  void step(const nas::SearchState& state, int64_t steps, int64_t epochs) {
    const double done = static_cast<double>(state.epoch * steps + state.step);
    const double all = static_cast<double>(epochs * steps);
    const double left = state.seconds / done * (all - done);
    live_(fmt::format("epoch {}/{}, step {}/{}, {:.2f} s a step, about {} left", state.epoch + 1, epochs,
                      state.step, steps, state.seconds / done,
                      left > 90 ? fmt::format("{:.0f} min", left / 60) : fmt::format("{:.0f} s", left)));
  }
  void line(const std::string& text) {
    if (lines_) fmt::print(stderr, "{}\n", text);
    live_(text);
  }

 private:
  Progress live_;
  bool lines_;
};

std::string checkpoint_path(const std::string& folder) { return folder + "/search.checkpoint"; }

Checkpoint checkpoint_of(const nas::SearchState& state, const nas::SupernetProblem& problem) {
  Checkpoint checkpoint = nas::search_checkpoint(state);
  checkpoint.metadata["images"] = {{"train", problem.inner_samples()}, {"valid", problem.outer_samples()}};
  return checkpoint;
}

nas::SearchState resumed_state(const Options& o, const nas::SupernetProblem& problem,
                               const std::function<nas::SearchState()>& begin, c10::Device device) {
  const std::string path = checkpoint_path(o.resume);
  if (!std::filesystem::exists(path) && !std::filesystem::exists(previous_checkpoint(path))) {
    return begin();  // killed before its first epoch was done
  }
  const Checkpoint checkpoint = load_checkpoint(path);
  if (!checkpoint.warning.empty()) fmt::print(stderr, "warning: {}\n", checkpoint.warning);
  for (const std::string& difference : differences(checkpoint.machine, machine_facts())) {
    fmt::print(stderr, "warning: {}\n", difference);
  }
  const auto stored = checkpoint.metadata.find("images");
  const nlohmann::json now = {{"train", problem.inner_samples()}, {"valid", problem.outer_samples()}};
  if (stored == checkpoint.metadata.end() || *stored != now) {
    throw std::runtime_error(fmt::format(
        "--resume {}: the run was made on other images than are there now ({}): give the data it began "
        "with",
        o.resume, now.dump()));
  }
  return nas::search_state(checkpoint, problem.supernet().space(), device);
}

struct Setup {
  nas::SearchSpace space;
  std::optional<nas::RandomSearch> random;  // where the method has no supernet
  nas::SearchOptions search;
  std::optional<nas::Benchmark> benchmark;
  std::optional<nas::SupernetProblem> problem;
  at::TensorOptions tensors;
};

// Cells of the size of the supernet, trained by the space's recipe but for what a search says of it.
nas::RandomSearch make_random_search(const nas::SearchSpace& space, const nas::SearchOptions& search,
                                     const Options& o, const ImageData& data, const SearchSplit& split,
                                     const at::TensorOptions& tensors) {
  const auto half = [&](const Tensor& positions) {
    return DeviceImages(data.train_images.index_select(0, positions),
                        data.train_labels.index_select(0, positions), data.mean, data.std, tensors);
  };
  nas::RandomSearch random;
  random.space = space;
  random.network.channels = o.network.channels;
  random.network.cells = o.network.cells > 0 ? o.network.cells : nas::default_search_cells(space.kind);
  random.network.input_channels = data.train_images.size(1);
  random.network.height = data.train_images.size(2);
  random.network.width = data.train_images.size(3);
  random.network.classes = data.classes;
  random.train = half(split.train);
  random.valid = half(split.valid);
  random.training = nas::default_train_options(space.kind);
  random.training.epochs = search.epochs;
  random.training.batch = search.batch;
  random.training.rate = search.inner.rate;
  random.training.weight_decay = search.weight_decay;
  random.training.drop_path = random.training.auxiliary = 0;  // for long trainings
  random.training.augment = o.augment;
  random.samples = search.samples;
  random.seed = search.seed;
  return random;
}

nas::SearchSpace make_named_space(const Options& o) {
  const char* option = "--space";
  try {
    nas::SearchSpace whole = nas::make_space(o.space);
    option = "--operations";
    return o.operations.empty() ? whole : nas::make_space(o.space, o.operations);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", option, error.what()));
  }
}

// A run of any command, even one that was killed before its first checkpoint.
void require_no_run(const std::string& folder) {
  for (const std::string& path : {checkpoint_path(folder), folder + "/config.json"}) {
    if (!std::filesystem::exists(path)) continue;
    throw std::invalid_argument(fmt::format(
        "--out {}: there is a run in it already ({}); go on with --resume {} or give another folder", folder,
        path, folder));
  }
}

// The run's folder. A search that fails before its first checkpoint has nothing to go on from: it leaves
// nothing.
class NewRun {
 public:
  NewRun(const CLI::App& command, const std::string& folder) : folder_(folder), made_(folder) {
    save_options(command, folder);
  }
  NewRun(const NewRun&) = delete;
  NewRun& operator=(const NewRun&) = delete;
  ~NewRun() {
    if (kept_ || std::filesystem::exists(checkpoint_path(folder_))) {
      made_.keep();
    } else {
      ::unlink((folder_ + "/config.json").c_str());
    }
  }
  void keep() { kept_ = true; }

 private:
  std::string folder_;
  OutFolder made_;
  bool kept_ = false;
};

Setup make_setup(const CLI::App& command, Options& o) {
  Setup setup;
  setup.space = make_named_space(o);
  setup.search = search_options(command, o, setup.space);
  setup.tensors = apply_common_options(o.common);
  if (!o.benchmark.empty()) {
    setup.benchmark = nas::Benchmark::load(o.benchmark);
    try {
      setup.benchmark->require_space(setup.space);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(
          fmt::format("--benchmark {}: {}; give its table or leave it out", o.benchmark, error.what()));
    }
  }
  o.data.seed = o.split.seed = setup.search.seed;
  const ImageData data = load_image_data(o.data);
  const SearchSplit split = make_search_split(data.train_labels, data.classes, o.split);
  if (o.method == "random") {
    setup.random = make_random_search(setup.space, setup.search, o, data, split, setup.tensors);
  }
  setup.problem.emplace(nas::make_supernet_problem(
      setup.space, o.network, nas::search_images(data, split, o.augment, setup.tensors), setup.tensors));
  return setup;
}

void run(CLI::App& command, Options& o, int& exit_code) {
  if (!o.resume.empty()) {
    load_options(command, o.resume);
  } else if (!o.out.empty()) {
    require_no_run(o.out);
  }
  SearchProgress progress(o.common);
  progress.line("search: reading the data");
  Setup setup = make_setup(command, o);
  const nas::Benchmark* benchmark = setup.benchmark ? &*setup.benchmark : nullptr;
  std::optional<nas::Search> search;
  if (!setup.random) search.emplace(*setup.problem, setup.search, benchmark);
  const auto begin = [&] { return search ? search->begin() : nas::begin_random_search(*setup.random); };

  const std::string folder = !o.resume.empty() ? o.resume
                             : !o.out.empty()  ? o.out
                                               : default_run_folder("search", setup.search.seed);
  nas::SearchState state =
      o.resume.empty() ? begin() : resumed_state(o, *setup.problem, begin, setup.tensors.device());
  std::optional<NewRun> new_run;
  if (o.resume.empty()) new_run.emplace(command, folder);
  progress.line(search ? fmt::format("search: {} weights, {} alpha, {} steps of alpha an epoch, into {}",
                                     setup.problem->supernet().plan().parameters(), setup.space.alpha_size(),
                                     search->steps_per_epoch(), folder)
                       : fmt::format("search: {} random cells, {} epochs each, into {}", setup.search.samples,
                                     setup.search.epochs, folder));

  const StopSignal on_signal;
  nas::SearchCallbacks callbacks;
  callbacks.step = [&](const nas::SearchState& s, int64_t steps) {
    progress.step(s, steps, setup.search.epochs);
  };
  callbacks.epoch = [&](const nas::EpochRecord& r) {
    progress.line(epoch_line(setup.space, r, setup.search.epochs));
  };
  callbacks.save = [&](const nas::SearchState& s) {
    save_checkpoint(checkpoint_path(folder), checkpoint_of(s, *setup.problem));
    write_history(setup.space, s.history, folder);
  };
  callbacks.interrupted = [] { return stop_requested(); };
  callbacks.message = [&](const std::string& text) { progress.line(text); };
  const nas::SearchSummary summary =
      search ? search->run(std::move(state), callbacks)
             : nas::random_search(*setup.random, benchmark, std::move(state), callbacks);
  if (new_run) new_run->keep();

  nas::NetworkOptions size;
  const nas::SupernetOptions& images = setup.problem->supernet().options();
  size.input_channels = images.input_channels;
  size.height = images.height;
  size.width = images.width;
  size.classes = images.classes;
  const nas::Network network(setup.space, summary.genotype, size);
  SearchOutput output{
      .space = setup.space, .options = setup.search, .summary = summary, .benchmark = benchmark};
  output.data = o.data.data;
  output.folder = folder;
  output.parameters = network.parameters();
  output.multiply_adds = network.multiply_adds();
  const bool interrupted_now = summary.end == nas::SearchEnd::interrupted;
  if (!interrupted_now) write_search(output);
  if (o.common.json) {
    fmt::print("{}\n", search_json(output).dump());
  } else {
    print_search(output);
  }
  if (interrupted_now) {
    fmt::print(stderr, "interrupted; the state is saved: go on with `bilevel search --resume {}`\n", folder);
    exit_code = interrupted;
  } else if (!o.common.json) {
    fmt::print("written to {}: genotype.txt, genotype.json, history.jsonl, summary.json{}\n", folder,
               std::filesystem::exists(folder + "/cell.svg") ? ", cell.svg" : "");
  }
}

}  // namespace

void add_search_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("search", "Search a network for images (iDARTS, DARTS, GDAS, random)");
  command->footer(
      "A network with all operations of a space is trained on one half of the images while alpha, the "
      "weights of the\n"
      "operations, follows the hypergradient of the loss on the other half; the strongest operations are the "
      "answer.\n"
      "Examples:\n"
      "  bilevel search --data fashion-mnist --channels 4 --cells 1 --train-size 2000 --epochs 5\n"
      "  bilevel search --space darts --data my-photos/ --image-size 32 --epochs 20 --stop eigenvalue\n"
      "  bilevel search --data cifar10 --split cifar-split.txt --benchmark nasbench201.csv --device cuda\n"
      "  bilevel search --resume runs/search-20260101-120000-0");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options, &exit_code] { run(*command, *options, exit_code); });
}

}  // namespace bilevel::cli
