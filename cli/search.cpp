// `bilevel search`: a network for one's images, by differentiable architecture search.

#include "bilevel/nas/search.h"

#include <fmt/format.h>

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
#include "bilevel/jobs/data_digest.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/random_search.h"
#include "bilevel/nas/search_checkpoint.h"
#include "bilevel/nas/search_diagnosis.h"
#include "bilevel/nas/search_images.h"
#include "bilevel/run/stop_signal.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/image_options.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/run_problem.h"
#include "cli/search_flags.h"
#include "cli/search_output.h"

namespace bilevel::cli {
namespace {

void show_step(Progress& progress, const nas::SearchState& state, int64_t steps, int64_t epochs) {
  if (!progress.due()) return;
  const double done = static_cast<double>(state.epoch * steps + state.step);
  const double all = static_cast<double>(epochs * steps);
  std::string alpha;  // while the weights warm up it rests
  if (state.loss.count > 0) alpha += fmt::format(", loss {:.4f}", state.loss.value());
  if (state.norm.count > 0) alpha += fmt::format(", hypergradient {:.3g}", state.norm.value());
  progress(fmt::format("search: epoch {}/{}, step {}/{}{}, {:.2f} s a step, about {} left", state.epoch + 1,
                       epochs, state.step, steps, alpha, state.seconds / done,
                       time_text(state.seconds / done * (all - done))));
}

struct Setup {
  nas::SearchSpace space;
  std::optional<nas::RandomSearch> random;  // where the method has no supernet
  nas::SearchOptions search;
  std::optional<nas::Benchmark> benchmark;
  std::optional<nas::SupernetProblem> problem;
  at::TensorOptions tensors;
  std::string digest;  // of the images
  Json held_out;       // which of them no search sees
};

nas::SearchState resumed_state(const SearchFlags& o, const Setup& setup, const Checkpoint& checkpoint) {
  if (checkpoint.metadata.value("data", "") != setup.digest) {
    throw std::runtime_error(
        fmt::format("--resume {}: the run was made on other images, or another split, than are there now ({} "
                    "training, {} validation): give the data it began with",
                    o.run.resume, setup.problem->inner_samples(), setup.problem->outer_samples()));
  }
  return nas::search_state(checkpoint, setup.space, setup.tensors.device());
}

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

// --method auto: the rest goes on as if the choice had been typed.
void choose_search_method(CLI::App& command, SearchFlags& o, Setup& setup, Progress& progress) {
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
  set_option(command, "--method", d.method);
  if (d.method == "idarts") {
    choice["K"] = d.terms;
    choice["curvature"] = d.curvature;
    set_option(command, "--terms", std::to_string(d.terms));
    set_option(command, "--curvature", d.curvature);
    set_option(command, "--series-rate", "auto");
  }
  set_option(command, "--auto-choice", choice.dump());
  setup.search = search_options(command, o, setup.space);
}

Setup make_setup(CLI::App& command, SearchFlags& o, Progress& progress) {
  Setup setup;
  setup.space = make_named_space(o);
  const bool automatic = o.method == "auto";
  refuse_ignored_accuracy(command, o.automatic, automatic);
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
  o.split.seed = setup.search.seed;
  const ImageData data = load_image_data(o.data);
  setup.held_out = held_out_json(data);
  const SearchSplit split = make_search_split(data.train_labels, data.classes, o.split);
  setup.digest =
      data_digest({data.train_images, data.train_labels, split.train, split.valid}, {data.classes});
  if (o.method == "random") {
    setup.random = make_random_search(setup.space, setup.search, o, data, split, setup.tensors);
  }
  o.network.partial = setup.search.guard.partial();
  setup.problem.emplace(nas::make_supernet_problem(
      setup.space, o.network, nas::search_images(data, split, o.augment, setup.tensors), setup.tensors));
  setup.space = setup.problem->supernet().space();  // with what its guard adds to alpha
  if (automatic) choose_search_method(command, o, setup, progress);
  if (command.count("--guard-strength") == 0) {
    setup.search.guard.strength = nas::default_guard_strength(setup.search, setup.problem->inner_samples());
  }
  return setup;
}

// config.json shows what the options' variables hold: the defaults of the space and the method, too.
void show_in_use(SearchFlags& o, const Setup& setup) {
  o.given = setup.search;
  o.mixed = setup.search.hypergradient.curvature.difference_mixed ? "difference" : "exact";
  if (o.network.cells == 0) o.network.cells = nas::default_search_cells(setup.space.kind);
}

SearchOutput output_of(const SearchFlags& o, const Setup& setup, const nas::SearchSummary& summary,
                       const std::string& folder) {
  nas::NetworkOptions size;
  const nas::SupernetOptions& images = setup.problem->supernet().options();
  size.input_channels = images.input_channels;
  size.height = images.height;
  size.width = images.width;
  size.classes = images.classes;
  const nas::Network network(setup.space, summary.genotype, size);
  SearchOutput output{.space = setup.space,
                      .options = setup.search,
                      .summary = summary,
                      .benchmark = setup.benchmark ? &*setup.benchmark : nullptr};
  output.data = o.data.data;
  output.folder = folder;
  output.automatic = o.automatic;
  output.parameters = network.parameters();
  output.multiply_adds = network.multiply_adds();
  return output;
}

void work(const CLI::App& command, const SearchFlags& o, Setup& setup, nas::Search* search, RunFolder& folder,
          Progress& progress, int& exit_code) {
  const nas::Benchmark* benchmark = setup.benchmark ? &*setup.benchmark : nullptr;
  const auto checkpoint = load_run(folder, o.run, o.common);
  nas::SearchState state = checkpoint          ? resumed_state(o, setup, *checkpoint)
                           : search != nullptr ? search->begin()
                                               : nas::begin_random_search(*setup.random);
  const StopSignal on_signal;
  nas::SearchCallbacks callbacks;
  OracleCounts counts = state.counts;
  callbacks.step = [&](const nas::SearchState& s, int64_t steps) {
    counts = s.counts;
    show_step(progress, s, steps, setup.search.epochs);
  };
  callbacks.epoch = [&](const nas::EpochRecord& r) {
    Json line = {{"step", r.epoch}};
    line.update(nas::epoch_json(setup.space, r));
    if (search != nullptr) line["counts"] = counts_json(counts);  // others train cells, without an oracle
    folder.record(line);
    progress.line(epoch_line(setup.space, r, setup.search.epochs));
  };
  callbacks.save_seconds = o.run.save_seconds;
  callbacks.save = [&](const nas::SearchState& s) {
    Checkpoint now = nas::search_checkpoint(s);
    now.metadata["data"] = setup.digest;
    folder.save(std::move(now));
  };
  callbacks.interrupted = [] { return stop_requested(); };
  callbacks.message = [&](const std::string& text) { progress.line(text); };
  const nas::SearchSummary summary =
      search != nullptr ? search->run(std::move(state), callbacks)
                        : nas::random_search(*setup.random, benchmark, std::move(state), callbacks);
  const SearchOutput output = output_of(o, setup, summary, folder.path());
  Json json = search_json(output);
  json["held_out"] = setup.held_out;
  const bool interrupted_now = summary.end == nas::SearchEnd::interrupted;
  const bool failed_now = summary.end == nas::SearchEnd::failed;
  if (!interrupted_now && !failed_now) write_search(output);
  folder.end(interrupted_now ? RunStatus::interrupted
             : failed_now    ? RunStatus::failed
                             : RunStatus::finished,
             failed_now ? summary.reason : "", json);
  if (o.common.json) {
    fmt::print("{}\n", json.dump());
  } else {
    print_search(output);
  }
  if (interrupted_now) {
    say_interrupted(command, folder);
    exit_code = interrupted;
  } else if (failed_now) {
    fmt::print(stderr, "bilevel: {}: {}\n", setup.search.method, summary.reason);
    exit_code = not_finite;
  } else if (!o.common.json) {
    fmt::print("written to {}: genotype.txt, genotype.json, metrics.jsonl, summary.json{}\n", folder.path(),
               std::filesystem::exists(folder.file("cell.svg")) ? ", cell.svg" : "");
  }
}

// A run goes on as it began, whatever the defaults are now: earlier ones had another method and no guard.
void keep_earlier_defaults(CLI::App& command, const RunFlags& run) {
  if (run.resume.empty()) return;
  const Json config = read_json_file(run.resume + "/config.json");
  if (!config.contains("effective")) return;
  const Json& effective = config["effective"];
  if (!effective.contains("--guard")) set_option(command, "--guard", "none");
  if (command.count("--method") == 0 && effective.contains("--method") && effective["--method"].is_string()) {
    const auto method = effective["--method"].get<std::string>();
    if (method != nas::default_method) set_option(command, "--method", method);
  }
  // A default strength is another on other data, and was 50 before that.
  const std::string guard = effective.value("--guard", "none");
  if (guard != "none" && command.count("--guard-strength") == 0 && effective.contains("--guard-strength")) {
    set_option(command, "--guard-strength", effective["--guard-strength"].get<std::string>());
  }
}

void run(CLI::App& command, SearchFlags& o, int& exit_code) {
  take_options(command, o.run, o.common);
  if (repeats_finished_run(o.run, o.common)) return;
  keep_earlier_defaults(command, o.run);
  Progress progress(o.common);
  progress.line("search: reading the data");
  Setup setup = make_setup(command, o, progress);
  std::optional<nas::Search> search;
  if (!setup.random) {
    search.emplace(*setup.problem, setup.search, setup.benchmark ? &*setup.benchmark : nullptr);
  }
  show_in_use(o, setup);
  RunFolder folder = open_run(command, o.run, setup.search.seed);
  progress.line(search ? fmt::format("search: {} weights, {} alpha, {} steps of alpha an epoch, into {}",
                                     setup.problem->supernet().plan().parameters(), setup.space.alpha_size(),
                                     search->steps_per_epoch(), folder.path())
                       : fmt::format("search: {} random cells, {} epochs each, into {}", setup.search.samples,
                                     setup.search.epochs, folder.path()));
  work_in(folder, [&] { work(command, o, setup, search ? &*search : nullptr, folder, progress, exit_code); });
}

}  // namespace

nas::SearchDiagnosis diagnose_search_run(const std::string& folder, double accuracy) {
  CLI::App command("", "search");
  SearchFlags o;
  add_search_options(command, o);
  o.run.config = folder + "/config.json";
  take_options(command, o.run, o.common);
  Progress progress(o.common);
  Setup setup = make_setup(command, o, progress);
  if (setup.random) {
    throw std::invalid_argument(
        fmt::format("--at {}: --method random trains single cells, there is no bilevel problem", folder));
  }
  const Checkpoint checkpoint = load_checkpoint(folder + "/checkpoint");
  const AlgorithmState at = nas::search_state(checkpoint, setup.space, setup.tensors.device()).algorithm;
  return nas::diagnose_search(*setup.problem, setup.search, accuracy, at.inner.w, at.x);
}

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
