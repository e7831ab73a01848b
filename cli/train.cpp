// `bilevel train`: trains a cell's network from scratch and tests it.

#include "bilevel/nas/train.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/data/image_data.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/splits.h"
#include "bilevel/data/write_file.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/nas/train_checkpoint.h"
#include "bilevel/run/stop_signal.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out_folder.h"
#include "cli/progress.h"
#include "cli/train_settings.h"

namespace bilevel::cli {
namespace {

constexpr int64_t largest_genotype_file = 1 << 20;
constexpr double save_seconds = 10;  // at least, between two checkpoints

struct Options {
  CommonOptions common{.dtype = "float"};
  TrainSettings settings;
  std::string genotype_file;
  std::string out, resume;
  bool no_flip = false;
};

void add_options(CLI::App& command, Options& o) {
  nas::TrainOptions& t = o.settings.train;
  auto* what = command.add_option_group("what to train");
  what->add_option("--space", o.settings.space, "search space of the cell")->capture_default_str();
  what->add_option("--arch", o.settings.genotype, "the cell, as text or JSON");
  what->add_option("--genotype", o.genotype_file,
                   "file that holds it, such as the genotype.json of a search");
  what->add_option("--channels", o.settings.channels, "of the first stage; 0 = the space's own")
      ->capture_default_str();
  what->add_option("--cells", o.settings.cells, "a stage in nasbench201, else in all; 0 = the space's own")
      ->capture_default_str();
  what->add_flag("--imagenet", o.settings.imagenet, "darts: the network and the recipe for ImageNet");

  ImageDataOptions& d = o.settings.data;
  auto* data = command.add_option_group("images");
  data->add_option("--data", d.data,
                   "cifar10, cifar100, mnist, fashion-mnist, a folder of class folders, or an IDX file")
      ->capture_default_str();
  data->add_option("--data-dir", d.folder, "where `bilevel data get` put a set")
      ->envname("BILEVEL_DATA")
      ->capture_default_str();
  data->add_option("--labels", d.labels, "IDX file of the labels of an IDX file");
  data->add_option("--test-images", d.test_images, "IDX file; left out: a fifth is held out");
  data->add_option("--test-labels", d.test_labels, "IDX file");
  data->add_option("--image-size", d.image_size, "rescales all images to this side; 0 = as they are")
      ->capture_default_str();
  data->add_option("--train-size", o.settings.train_size, "class-balanced part of the set; 0 = all")
      ->capture_default_str();

  auto* how = command.add_option_group("how; the space's published recipe where nothing is said");
  how->add_option("--epochs", t.epochs, "200, darts 600, nasbench1shot1 108");
  how->add_option("--batch", t.batch, "images a step: 256, darts 96");
  how->add_option("--rate", t.rate, "at the start: 0.1, darts 0.025, nasbench1shot1 0.2");
  how->add_option("--schedule", t.schedule, "of the rate: cosine, linear, linear-gentle or constant");
  how->add_option("--warmup", t.warmup_epochs, "epochs over which the rate rises first");
  how->add_option("--momentum", t.momentum, "0 = plain gradient descent");
  how->add_flag("--nesterov,!--no-nesterov", t.nesterov, "Nesterov's form of it; nasbench201's recipe");
  how->add_option("--weight-decay", t.weight_decay, "added to the gradient");
  how->add_option("--clip", t.clip, "largest norm of the gradient; 0 = no clipping; darts 5");
  how->add_option("--crop-padding", t.augment.crop_padding, "zeros around an image before a random crop");
  how->add_flag("--no-flip", o.no_flip, "no random flips");
  how->add_option("--cutout", t.augment.cutout, "side of a square set to zero; darts 16");
  how->add_option("--drop-path", t.drop_path, "darts: probability in the last epoch, 0.2");
  how->add_option("--auxiliary", t.auxiliary, "darts: weight of the second head's loss, 0.4; 0 = none");
  how->add_option("--label-smoothing", t.label_smoothing, "part of a label that all classes share");
  how->add_option("--seed", t.seed, "of the start, the batches, the augmentation and --train-size");

  command.add_option(
      "--out", o.out,
      "folder for genotype.txt, genotype.json, weights.checkpoint, history.jsonl, summary.json");
  command.add_option("--resume", o.resume, "goes on with what was stopped in this folder, to the same bits");
  add_common_options(command, o.common);
}

// ---- what was asked for ----

std::string read_genotype_file(const std::string& path) {
  LineReader lines(path, largest_genotype_file);
  std::string text;
  for (std::string_view line; lines.next(line);) {
    if (!trimmed(line).starts_with('#')) text.append(line).append("\n");
  }
  return text;
}

// The cell's text; a JSON file also says its space where --space does not.
void find_genotype(const CLI::App& command, Options& o) {
  TrainSettings& s = o.settings;
  if (s.genotype.empty() == o.genotype_file.empty()) {
    throw std::invalid_argument("train: say which cell by --arch TEXT or by --genotype FILE, one of the two");
  }
  if (!o.genotype_file.empty()) {
    s.genotype = read_genotype_file(o.genotype_file);
    const Json json = Json::parse(s.genotype, nullptr, /*allow_exceptions=*/false);
    if (command.count("--space") == 0 && json.is_object() && json.contains("space") &&
        json["space"].is_string()) {
      s.space = json["space"].get<std::string>();
    }
  }
  const nas::SearchSpace space = nas::make_space(s.space);
  try {
    s.genotype = nas::genotype_text(nas::parse_genotype(space, s.genotype));
  } catch (const std::invalid_argument& error) {
    if (o.genotype_file.empty()) throw;
    throw std::invalid_argument(fmt::format("{}: {}", o.genotype_file, error.what()));
  }
}

// The recipe of the space where the user said nothing else.
void complete(const CLI::App& command, Options& o) {
  TrainSettings& s = o.settings;
  const nas::SpaceKind kind = nas::make_space(s.space).kind;
  const nas::TrainOptions recipe = nas::default_train_options(kind, s.imagenet);
  const auto fill = [&](const char* option, auto& value, const auto& published) {
    if (command.count(option) == 0) value = published;
  };
  fill("--epochs", s.train.epochs, recipe.epochs);
  fill("--batch", s.train.batch, recipe.batch);
  fill("--rate", s.train.rate, recipe.rate);
  fill("--schedule", s.train.schedule, recipe.schedule);
  fill("--momentum", s.train.momentum, recipe.momentum);
  fill("--nesterov", s.train.nesterov, recipe.nesterov && s.train.momentum > 0);
  fill("--weight-decay", s.train.weight_decay, recipe.weight_decay);
  fill("--clip", s.train.clip, recipe.clip);
  fill("--crop-padding", s.train.augment.crop_padding, recipe.augment.crop_padding);
  fill("--cutout", s.train.augment.cutout, recipe.augment.cutout);
  fill("--drop-path", s.train.drop_path, recipe.drop_path);
  fill("--auxiliary", s.train.auxiliary, recipe.auxiliary);
  fill("--label-smoothing", s.train.label_smoothing, recipe.label_smoothing);
  s.train.augment.flip = !o.no_flip;
  s.dtype = o.common.dtype;
  s.data.seed = s.train.seed;
  if (s.train_size < 0) {
    throw std::invalid_argument(fmt::format("--train-size {}: must be at least 0 (all)", s.train_size));
  }
  if (kind != nas::SpaceKind::darts && s.train.drop_path > 0) {
    throw std::invalid_argument(
        fmt::format("--drop-path {}: only the DARTS space's networks drop paths", s.train.drop_path));
  }
  // What is wrong by itself is said before images are read.
  s.train.validate(s.train_size > 0 ? s.train_size : std::numeric_limits<int64_t>::max());
  s.data.validate();
}

// Those given, in all groups.
void collect_given(const CLI::App& command, std::vector<std::string>& names) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0) names.push_back(option->get_name());
  }
  for (const CLI::App* group : command.get_subcommands({})) collect_given(*group, names);
}

void require_nothing_else(const CLI::App& command) {
  static const std::set<std::string> allowed = {"--resume",  "--data-dir", "--device",
                                                "--threads", "--json",     "--quiet"};
  std::vector<std::string> others;
  collect_given(command, others);
  std::erase_if(others, [](const std::string& name) { return allowed.count(name) > 0; });
  if (!others.empty()) {
    throw std::invalid_argument(fmt::format(
        "--resume with {}: a training goes on as it began, and its folder says all but --data-dir, --device "
        "and --threads",
        fmt::join(others, ", ")));
  }
}

std::string checkpoint_path(const std::string& folder) { return folder + "/weights.checkpoint"; }

bool exists(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

// ---- the work ----

struct Job {
  std::optional<nas::SearchSpace> space;
  ImageData data;
  std::unique_ptr<nas::Network> network;
  std::unique_ptr<nas::Training> training;
};

void take_part(ImageData& data, int64_t size, uint64_t seed) {
  if (size == 0) return;
  if (size > data.train_labels.numel()) {
    throw std::invalid_argument(
        fmt::format("--train-size {}: there are only {} training images", size, data.train_labels.numel()));
  }
  const Tensor part =
      make_splits(data.train_labels, data.classes, {.train = size}, Balance::equal, seed).train;
  data.train_images = data.train_images.index_select(0, part);
  data.train_labels = data.train_labels.index_select(0, part);
}

Job prepare(const TrainSettings& s, const at::TensorOptions& tensors) {
  Job job;
  job.space = nas::make_space(s.space);
  job.data = load_image_data(s.data);
  take_part(job.data, s.train_size, s.train.seed);
  const ImageData& data = job.data;
  nas::NetworkOptions network{.channels = s.channels, .cells = s.cells};
  network.input_channels = data.train_images.size(1);
  network.height = data.train_images.size(2);
  network.width = data.train_images.size(3);
  network.classes = data.classes;
  network.imagenet_stem = s.imagenet;
  network.auxiliary = s.train.auxiliary > 0;
  job.network =
      std::make_unique<nas::Network>(*job.space, nas::parse_genotype(*job.space, s.genotype), network);
  job.training = std::make_unique<nas::Training>(
      *job.network, DeviceImages(data.train_images, data.train_labels, data.mean, data.std, tensors),
      DeviceImages(data.test_images, data.test_labels, data.mean, data.std, tensors), s.train);
  return job;
}

double seconds_of(const nas::TrainState& state) {
  double seconds = state.seconds;
  for (const nas::TrainEpoch& record : state.history) seconds += record.seconds;
  return seconds;
}

Json summary_json(const TrainSettings& s, const Job& job, const nas::TrainState& state, bool finished) {
  Json out = {
      {"space", s.space},
      {"genotype", s.genotype},
      {"parameters", job.network->parameters()},
      {"multiply_adds", job.network->multiply_adds()},
      {"data", s.data.data},
      {"train_images", job.data.train_labels.numel()},
      {"test_images", job.data.test_labels.numel()},
      {"finished", finished},
      {"test_accuracy", state.history.empty() ? Json(nullptr) : Json(state.history.back().test_accuracy)},
      {"seconds", seconds_of(state)},
      {"history", Json::array()}};
  for (const nas::TrainEpoch& record : state.history) out["history"].push_back(nas::epoch_json(record));
  return out;
}

void save(const std::string& folder, const TrainSettings& s, const Job& job, const nas::TrainState& state,
          bool finished) {
  Checkpoint checkpoint;
  nas::put_training(checkpoint, state);
  checkpoint.metadata["settings"] = settings_json(s);
  checkpoint.metadata["labels_sha256"] = labels_digest(job.data);
  save_checkpoint(checkpoint_path(folder), checkpoint);
  write_file(folder + "/genotype.txt", s.genotype + "\n");
  write_file(folder + "/genotype.json", nas::genotype_json(job.network->genotype()) + "\n");
  write_file(folder + "/history.jsonl", [&](std::ostream& stream) {
    for (const nas::TrainEpoch& record : state.history) stream << nas::epoch_json(record).dump() << '\n';
  });
  write_file(folder + "/summary.json", summary_json(s, job, state, finished).dump(2) + "\n");
}

void require_same_images(const Checkpoint& checkpoint, const ImageData& data, const std::string& folder) {
  if (checkpoint.metadata.value("labels_sha256", "") == labels_digest(data)) return;
  throw std::runtime_error(
      fmt::format("--resume {}: the labels of the images are others than those that it began with; give back "
                  "the same files, or begin anew with --out",
                  folder));
}

std::string epoch_line(const nas::TrainEpoch& r, int64_t epochs) {
  return fmt::format("epoch {}/{}: loss {:.4f}, train {:.2f} %, test {:.2f} %, {:.1f} s", r.epoch, epochs,
                     r.train_loss, r.train_accuracy, r.test_accuracy, r.seconds);
}

void print_text(const TrainSettings& s, const Job& job, const nas::TrainState& state) {
  fmt::print("{}\n{} parameters, {} multiply-adds; {} training and {} test images of {}\n\n", s.genotype,
             job.network->parameters(), job.network->multiply_adds(), job.data.train_labels.numel(),
             job.data.test_labels.numel(), s.data.data);
  fmt::print("{:>6}{:>11}{:>12}{:>10}{:>10}{:>10}\n", "epoch", "rate", "loss", "train %", "test %",
             "seconds");
  for (const nas::TrainEpoch& r : state.history) {
    fmt::print("{:>6}{:>11.5f}{:>12.4f}{:>10.2f}{:>10.2f}{:>10.1f}\n", r.epoch, r.rate, r.train_loss,
               r.train_accuracy, r.test_accuracy, r.seconds);
  }
}

void run(const CLI::App& command, Options& o, int& exit_code) {
  Checkpoint before;
  if (!o.resume.empty()) {
    require_nothing_else(command);
    before = load_checkpoint(checkpoint_path(o.resume));
    if (!before.warning.empty()) fmt::print(stderr, "warning: {}\n", before.warning);
    const std::string folder = o.settings.data.folder;
    o.settings = settings_from_json(before.metadata, checkpoint_path(o.resume));
    if (command.count("--data-dir") > 0) o.settings.data.folder = folder;
    o.common.dtype = o.settings.dtype;
    o.out = o.resume;
  } else {
    find_genotype(command, o);
    complete(command, o);
    if (!o.out.empty() && exists(checkpoint_path(o.out))) {
      throw std::invalid_argument(fmt::format(
          "--out {}: a training is there already; go on with it by --resume {}, or choose another folder",
          o.out, o.out));
    }
  }
  const at::TensorOptions tensors = apply_common_options(o.common);
  const TrainSettings& s = o.settings;
  Job job = prepare(s, tensors);
  nas::TrainState state;
  if (o.resume.empty()) {
    state = job.training->start();
  } else {
    require_same_images(before, job.data, o.resume);
    state = nas::take_training(before, *job.training);
  }
  before = {};
  OutFolder out(o.out);
  bool finished = false;
  {
    const StopSignal signals;
    Progress progress(o.common);
    auto saved = std::chrono::steady_clock::now();
    nas::TrainHooks hooks;
    hooks.stop = stop_requested;
    hooks.progress = [&](const nas::TrainProgress& p) {
      progress(fmt::format("train: epoch {}/{}, step {}/{}, loss {:.4f}", p.epoch, p.epochs, p.step, p.steps,
                           p.loss));
    };
    hooks.epoch_ended = [&](const nas::TrainState& now) {
      progress.line(epoch_line(now.history.back(), s.train.epochs));
      const auto clock = std::chrono::steady_clock::now();
      const bool last = now.epoch() == s.train.epochs;
      if (o.out.empty() || last || std::chrono::duration<double>(clock - saved).count() < save_seconds)
        return;
      save(o.out, s, job, now, false);
      out.keep();
      saved = clock;
    };
    finished = job.training->run(state, hooks);
  }
  if (!o.out.empty()) {
    save(o.out, s, job, state, finished);
    out.keep();
  }
  if (o.common.json) {
    fmt::print("{}\n", summary_json(s, job, state, finished).dump());
  } else {
    print_text(s, job, state);
    if (finished) {
      fmt::print("\ntest accuracy {:.2f} % after {} epochs, {:.1f} s\n", state.history.back().test_accuracy,
                 state.epoch(), seconds_of(state));
    }
    if (!o.out.empty()) {
      fmt::print(
          "written to {}: genotype.txt, genotype.json, weights.checkpoint, history.jsonl, summary.json\n",
          o.out);
    }
  }
  if (finished) return;
  exit_code = interrupted;
  fmt::print(stderr, "bilevel: stopped in epoch {} of {}; {}\n", state.epoch() + 1, s.train.epochs,
             o.out.empty() ? "nothing was saved, because there is no --out"
                           : fmt::format("bilevel train --resume {} goes on", o.out));
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("train", "Train a cell's network from scratch and test it");
  command->footer(
      "Defaults are the published recipes: nasbench201 200 epochs, batches of 256, Nesterov at 0.1;\n"
      "darts 600 epochs, batches of 96, 0.025, cutout 16, drop path 0.2, second head 0.4, 36 channels and\n"
      "20 cells; nasbench1shot1 108 epochs, batches of 256, 0.2 (by momentum, where NAS-Bench-101 took\n"
      "RMSProp). Rates fall along a cosine.\n"
      "Examples:\n"
      "  bilevel train --genotype found/genotype.json --data cifar10 --device cuda --out trained\n"
      "  bilevel train --arch '|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|' \\\n"
      "    --data fashion-mnist --channels 8 --cells 1 --epochs 2 --json\n"
      "  bilevel train --resume trained");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options, &exit_code] { run(*command, *options, exit_code); });
}

}  // namespace bilevel::cli
