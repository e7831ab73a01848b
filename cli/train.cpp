// `bilevel train`: trains a cell's network from scratch and tests it.

#include "bilevel/nas/train.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/data/image_data.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/splits.h"
#include "bilevel/data/write_file.h"
#include "bilevel/jobs/data_digest.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/nas/train_checkpoint.h"
#include "bilevel/run/stop_signal.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/image_options.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/run_options.h"

namespace bilevel::cli {
namespace {

constexpr int64_t largest_genotype_file = 1 << 20;

struct Options {
  CommonOptions common{.dtype = "float"};
  RunFlags run;
  std::string space = "nasbench201", genotype, genotype_file;
  int64_t channels = 0, cells = 0;
  bool imagenet = false, no_flip = false;
  int64_t train_size = 0;
  ImageDataOptions data;
  nas::TrainOptions train;
};

void add_options(CLI::App& command, Options& o) {
  nas::TrainOptions& t = o.train;
  auto* what = command.add_option_group("what to train");
  what->add_option("--space", o.space, "search space of the cell")->capture_default_str();
  what->add_option("--arch", o.genotype, "the cell, as text or JSON");
  what->add_option("--genotype", o.genotype_file,
                   "file that holds it, such as the genotype.json of a search");
  what->add_option("--channels", o.channels, "of the first stage; 0 = the space's own")
      ->capture_default_str();
  what->add_option("--cells", o.cells, "a stage in nasbench201, else in all; 0 = the space's own")
      ->capture_default_str();
  what->add_flag("--imagenet", o.imagenet, "darts: the network and the recipe for ImageNet");

  ImageDataOptions& d = o.data;
  auto* data = command.add_option_group("images");
  data->add_option("--data", d.data,
                   "cifar10, cifar100, mnist, fashion-mnist, a folder of class folders, or an IDX file")
      ->capture_default_str();
  data->add_option("--data-dir", d.folder, "folder of sets known by name: fetched, or unpacked as they come")
      ->envname("BILEVEL_DATA")
      ->capture_default_str();
  data->add_option("--labels", d.labels, "IDX file of the labels of an IDX file");
  data->add_option("--test-images", d.test_images,
                   "IDX file; left out: a fifth is held out, the same for every seed");
  data->add_option("--test-labels", d.test_labels, "IDX file");
  data->add_option("--image-size", d.image_size, "rescales all images to this side; 0 = as they are")
      ->capture_default_str();
  data->add_option("--train-size", o.train_size, "class-balanced part of the set; 0 = all")
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

  add_run_options(command, o.run);
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

// The cell's text; a JSON file also says its space where --space does not. The run keeps the cell itself: its
// file may move.
void find_genotype(CLI::App& command, Options& o) {
  if (o.genotype.empty() == o.genotype_file.empty()) {
    throw std::invalid_argument("train: say which cell by --arch TEXT or by --genotype FILE, one of the two");
  }
  if (!o.genotype_file.empty()) {
    o.genotype = read_genotype_file(o.genotype_file);
    const Json json = Json::parse(o.genotype, nullptr, /*allow_exceptions=*/false);
    if (command.count("--space") == 0 && json.is_object() && json.contains("space") &&
        json["space"].is_string()) {
      set_option(command, "--space", json["space"].get<std::string>());
    }
  }
  const nas::SearchSpace space = nas::make_space(o.space);
  try {
    set_option(command, "--arch", nas::genotype_text(nas::parse_genotype(space, o.genotype)));
  } catch (const std::invalid_argument& error) {
    if (o.genotype_file.empty()) throw;
    throw std::invalid_argument(fmt::format("{}: {}", o.genotype_file, error.what()));
  }
  command.get_option("--genotype")->clear();
}

// The recipe of the space where the user said nothing else.
void complete(const CLI::App& command, Options& o) {
  nas::TrainOptions& train = o.train;
  const nas::SpaceKind kind = nas::make_space(o.space).kind;
  const nas::TrainOptions recipe = nas::default_train_options(kind, o.imagenet);
  const auto fill = [&](const char* option, auto& value, const auto& published) {
    if (command.count(option) == 0) value = published;
  };
  fill("--epochs", train.epochs, recipe.epochs);
  fill("--batch", train.batch, recipe.batch);
  fill("--rate", train.rate, recipe.rate);
  fill("--schedule", train.schedule, recipe.schedule);
  fill("--momentum", train.momentum, recipe.momentum);
  fill("--nesterov", train.nesterov, recipe.nesterov && train.momentum > 0);
  fill("--weight-decay", train.weight_decay, recipe.weight_decay);
  fill("--clip", train.clip, recipe.clip);
  fill("--crop-padding", train.augment.crop_padding, recipe.augment.crop_padding);
  fill("--cutout", train.augment.cutout, recipe.augment.cutout);
  fill("--drop-path", train.drop_path, recipe.drop_path);
  fill("--auxiliary", train.auxiliary, recipe.auxiliary);
  fill("--label-smoothing", train.label_smoothing, recipe.label_smoothing);
  train.augment.flip = !o.no_flip;
  if (o.train_size < 0) {
    throw std::invalid_argument(fmt::format("--train-size {}: must be at least 0 (all)", o.train_size));
  }
  if (kind != nas::SpaceKind::darts && train.drop_path > 0) {
    throw std::invalid_argument(
        fmt::format("--drop-path {}: only the DARTS space's networks drop paths", train.drop_path));
  }
  // What is wrong by itself is said before images are read.
  train.validate(o.train_size > 0 ? o.train_size : std::numeric_limits<int64_t>::max());
  o.data.validate();
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

Job prepare(const Options& o, const at::TensorOptions& tensors) {
  Job job;
  job.space = nas::make_space(o.space);
  job.data = load_image_data(o.data);
  take_part(job.data, o.train_size, o.train.seed);
  const ImageData& data = job.data;
  nas::NetworkOptions network{.channels = o.channels, .cells = o.cells};
  network.input_channels = data.train_images.size(1);
  network.height = data.train_images.size(2);
  network.width = data.train_images.size(3);
  network.classes = data.classes;
  network.imagenet_stem = o.imagenet;
  network.auxiliary = o.train.auxiliary > 0;
  job.network =
      std::make_unique<nas::Network>(*job.space, nas::parse_genotype(*job.space, o.genotype), network);
  job.training = std::make_unique<nas::Training>(
      *job.network, DeviceImages(data.train_images, data.train_labels, data.mean, data.std, tensors),
      DeviceImages(data.test_images, data.test_labels, data.mean, data.std, tensors), o.train);
  return job;
}

double seconds_of(const nas::TrainState& state) {
  double seconds = state.seconds;
  for (const nas::TrainEpoch& record : state.history) seconds += record.seconds;
  return seconds;
}

Json summary_json(const Options& o, const Job& job, const nas::TrainState& state, const std::string& folder,
                  bool finished) {
  Json out = {
      {"space", o.space},
      {"genotype", o.genotype},
      {"parameters", job.network->parameters()},
      {"multiply_adds", job.network->multiply_adds()},
      {"data", o.data.data},
      {"train_images", job.data.train_labels.numel()},
      {"test_images", job.data.test_labels.numel()},
      {"held_out", held_out_json(job.data)},
      {"finished", finished},
      {"test_accuracy", state.history.empty() ? Json(nullptr) : Json(state.history.back().test_accuracy)},
      {"seconds", seconds_of(state)},
      {"folder", folder},
      {"history", Json::array()}};
  for (const nas::TrainEpoch& record : state.history) out["history"].push_back(nas::epoch_json(record));
  return out;
}

std::string digest_of(const ImageData& data) {
  return data_digest({data.train_images, data.train_labels, data.test_images, data.test_labels},
                     {data.classes});
}

void require_same_images(const Checkpoint& checkpoint, const std::string& digest, const std::string& folder) {
  if (checkpoint.metadata.value("data", "") == digest) return;
  throw std::runtime_error(
      fmt::format("--resume {}: the images or their labels are not those that it began with; "
                  "give back the same files, or begin anew with --out",
                  folder));
}

std::string epoch_line(const nas::TrainEpoch& r, int64_t epochs) {
  return fmt::format("epoch {}/{}: loss {:.4f}, train {:.2f} %, test {:.2f} %, {:.1f} s", r.epoch, epochs,
                     r.train_loss, r.train_accuracy, r.test_accuracy, r.seconds);
}

void print_text(const Options& o, const Job& job, const nas::TrainState& state) {
  fmt::print("{}\n{} parameters, {} multiply-adds; {} training and {} test images of {}\n\n", o.genotype,
             job.network->parameters(), job.network->multiply_adds(), job.data.train_labels.numel(),
             job.data.test_labels.numel(), o.data.data);
  fmt::print("{:>6}{:>11}{:>12}{:>10}{:>10}{:>10}\n", "epoch", "rate", "loss", "train %", "test %",
             "seconds");
  for (const nas::TrainEpoch& r : state.history) {
    fmt::print("{:>6}{:>11.5f}{:>12.4f}{:>10.2f}{:>10.2f}{:>10.1f}\n", r.epoch, r.rate, r.train_loss,
               r.train_accuracy, r.test_accuracy, r.seconds);
  }
}

// From the checkpoint where there is one; whether it came to the end.
bool train_in_folder(const Options& o, const Job& job, RunFolder& folder, nas::TrainState& state) {
  const auto checkpoint = load_run(folder, o.run, o.common);
  const std::string digest = digest_of(job.data);
  if (checkpoint) require_same_images(*checkpoint, digest, o.run.resume);
  state = checkpoint ? nas::take_training(*checkpoint, *job.training) : job.training->start();
  const int64_t steps = job.training->steps_per_epoch();
  RunProgress progress(o.common, "train", o.train.epochs * steps, state.inner.step);
  nas::TrainHooks hooks;
  hooks.stop = stop_requested;
  hooks.progress = [&](const nas::TrainProgress& p) {
    progress({.step = (p.epoch - 1) * steps + p.step,
              .loss = p.loss,
              .more = fmt::format("epoch {}/{}", p.epoch, p.epochs)});
  };
  hooks.epoch_ended = [&](const nas::TrainState& now) {
    const nas::TrainEpoch& last = now.history.back();
    Json line = {{"step", last.epoch}};
    line.update(nas::epoch_json(last));
    folder.record(line);
    progress.line(epoch_line(last, o.train.epochs));
  };
  hooks.save_seconds = o.run.save_seconds;
  hooks.save = [&](const nas::TrainState& now) {
    Checkpoint saved;
    nas::put_training(saved, now);
    saved.metadata["data"] = digest;
    folder.save(std::move(saved));
  };
  return job.training->run(state, hooks);
}

void work(const CLI::App& command, const Options& o, const Job& job, RunFolder& folder, int& exit_code) {
  const StopSignal on_signal;
  write_file(folder.file("genotype.txt"), o.genotype + "\n");
  write_file(folder.file("genotype.json"), nas::genotype_json(job.network->genotype()) + "\n");
  nas::TrainState state;
  const bool finished = train_in_folder(o, job, folder, state);
  const Json json = summary_json(o, job, state, folder.path(), finished);
  if (o.common.json) {
    fmt::print("{}\n", json.dump());
  } else {
    print_text(o, job, state);
  }
  folder.end(finished ? RunStatus::finished : RunStatus::interrupted, "", json);
  if (!finished) {
    say_interrupted(command, folder);
    exit_code = interrupted;
  } else if (!o.common.json) {
    fmt::print("\ntest accuracy {:.2f} % after {} epochs, {:.1f} s\n", state.history.back().test_accuracy,
               state.epoch(), seconds_of(state));
    fmt::print("written to {}: genotype.txt, genotype.json, checkpoint, metrics.jsonl, summary.json\n",
               folder.path());
  }
}

void run(CLI::App& command, Options& o, int& exit_code) {
  take_options(command, o.run, o.common);
  if (repeats_finished_run(o.run, o.common)) return;
  find_genotype(command, o);
  complete(command, o);
  const Job job = prepare(o, apply_common_options(o.common));
  RunFolder folder = open_run(command, o.run, o.train.seed);
  work_in(folder, [&] { work(command, o, job, folder, exit_code); });
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
