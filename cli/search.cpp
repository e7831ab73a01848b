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
#include "bilevel/nas/search_diagnosis.h"
#include "bilevel/nas/search_images.h"
#include "bilevel/run/machine.h"
#include "bilevel/run/stop_signal.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out_folder.h"
#include "cli/run_folder.h"
#include "cli/search_flags.h"
#include "cli/search_output.h"

namespace bilevel::cli {
namespace {

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

nas::SearchState resumed_state(const SearchFlags& o, const nas::SupernetProblem& problem,
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
                                     const SearchFlags& o, const ImageData& data, const SearchSplit& split,
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

nas::SearchSpace make_named_space(const SearchFlags& o) {
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

// --method auto: the rest goes on as if the choice had been typed.
void choose_search_method(CLI::App& command, SearchFlags& o, Setup& setup, SearchProgress& progress) {
  for (const char* option : {"--terms", "--curvature", "--series-rate"}) {
    if (command.count(option) > 0) {
      throw std::invalid_argument(
          fmt::format("{} with --method auto, which chooses it: leave it out, or name the method", option));
    }
  }
  const nas::SearchDiagnosis d = nas::diagnose_search(*setup.problem, setup.search, o.automatic.accuracy);
  progress.line("auto: " + d.sentence);
  Json choice = {{"method", d.method},
                 {"implicit_share", number(d.implicit_share)},
                 {"smallest_eigenvalue", number(d.hessian.smallest)},
                 {"largest_eigenvalue", number(d.hessian.largest)},
                 {"error", number(d.error)},
                 {"accuracy", o.automatic.accuracy},
                 {"diagnosis_seconds", d.seconds},
                 {"sentence", d.sentence}};
  type_option(command, "--method", d.method);
  if (d.method == "idarts") {
    choice["K"] = d.terms;
    choice["curvature"] = d.curvature;
    type_option(command, "--terms", std::to_string(d.terms));
    type_option(command, "--curvature", d.curvature);
    type_option(command, "--series-rate", "auto");
  }
  type_option(command, "--auto-choice", choice.dump());
  setup.search = search_options(command, o, setup.space);
}

Setup make_setup(CLI::App& command, SearchFlags& o, SearchProgress& progress) {
  Setup setup;
  setup.space = make_named_space(o);
  const bool automatic = o.method == "auto";
  if (automatic) o.method = "idarts";  // whose defaults the diagnosis is made with
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
  if (automatic) choose_search_method(command, o, setup, progress);
  return setup;
}

void run(CLI::App& command, SearchFlags& o, int& exit_code) {
  if (!o.resume.empty()) {
    load_options(command, o.resume);
  } else if (!o.out.empty()) {
    require_no_run(o.out);
  }
  SearchProgress progress(o.common);
  progress.line("search: reading the data");
  Setup setup = make_setup(command, o, progress);
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
  output.automatic = o.automatic;
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
  const auto options = std::make_shared<SearchFlags>();
  add_search_options(*command, *options);
  command->callback([command, options, &exit_code] { run(*command, *options, exit_code); });
}

}  // namespace bilevel::cli
