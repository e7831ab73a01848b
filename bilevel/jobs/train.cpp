#include "bilevel/jobs/train.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bilevel/data/large_tensor.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/splits.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/batch_norm_choice.h"
#include "bilevel/jobs/data_digest.h"
#include "bilevel/jobs/image_choice.h"
#include "bilevel/jobs/saved_model.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/train_checkpoint.h"
#include "bilevel/report/picture.h"
#include "bilevel/run/kept_loop.h"

namespace bilevel {
namespace {

// ---- what was asked for ----

std::string read_genotype_file(const std::string& path) {
  constexpr int64_t largest = 1 << 20;
  LineReader lines(path, largest);
  std::string text;
  for (std::string_view line; lines.next(line);) {
    if (!trimmed(line).starts_with('#')) text.append(line).append("\n");
  }
  return text;
}

// The cell's text; a JSON file also says its space where the options do not. The run keeps the cell itself:
// its file may move.
void find_genotype(TrainJobOptions& o) {
  if (o.genotype.empty() == o.genotype_file.empty()) {
    throw OptionError(fmt::format("train: name the cell with {} or {}, one of the two", named("arch", "TEXT"),
                                  named("genotype", "FILE")));
  }
  const std::string file = o.genotype_file;
  if (!file.empty()) {
    o.genotype = read_genotype_file(file);
    const Json json = Json::parse(o.genotype, nullptr, /*allow_exceptions=*/false);
    if (!o.given(o.space) && json.is_object() && json.contains("space") && json["space"].is_string()) {
      o.given.set(o.space, json["space"].get<std::string>());
    }
  }
  const nas::SearchSpace space = nas::make_space(o.space);
  try {
    o.given.set(o.genotype, nas::genotype_text(nas::parse_genotype(space, o.genotype)));
  } catch (const std::invalid_argument& error) {
    if (file.empty()) throw;
    throw std::invalid_argument(fmt::format("{}: {}", file, error.what()));
  }
  o.genotype_file.clear();
  o.given.forget(o.genotype_file);
}

// The recipe of the space, for all that was not given.
void complete_training(TrainJobOptions& o) {
  const nas::SpaceKind kind = nas::make_space(o.space).kind;
  TrainJobOptions given = o;
  nas::TrainOptions& train = o.train;
  train = nas::default_train_options(kind, o.imagenet);
  OptionsView(o).take_given(OptionsView(given));
  if (!o.given(train.nesterov)) train.nesterov = train.nesterov && train.momentum > 0;
  if (kind != nas::SpaceKind::darts && train.drop_path > 0) {
    throw OptionError(fmt::format("{}: only the DARTS space's networks drop paths",
                                  named("drop_path", word_of(train.drop_path))));
  }
  // Options that cannot be are refused before images are read.
  train.validate(o.train_size > 0 ? o.train_size : std::numeric_limits<int64_t>::max());
  o.data.validate();
}

// ---- the work ----

struct TrainSetup {
  ImageData data = {};
  std::string digest = {};
  nas::BatchRanks ranks = {};
  std::unique_ptr<nas::Network> network = {};
  std::unique_ptr<nas::Training> training = {};
};

void take_part(ImageData& data, int64_t size, uint64_t seed) {
  if (size == 0) return;
  if (size > data.train.labels.numel()) {
    throw OptionError(fmt::format("{}: there are only {} training images", named("train_size", word_of(size)),
                                  data.train.labels.numel()));
  }
  const Tensor part =
      make_splits(data.train.labels, data.classes, {.train = size}, Balance::equal, seed).train;
  data.train.images = select_rows(data.train.images, part);
  data.train.labels = data.train.labels.index_select(0, part);
}

TrainSetup set_up_training(TrainJobOptions& o, const ImageData* images, const at::TensorOptions& tensors,
                           const RunContext& context) {
  TrainSetup setup;
  setup.ranks = batch_ranks(o.batch_norm, tensors, context);
  const nas::SearchSpace space = nas::make_space(o.space);
  setup.data = images == nullptr ? load_image_data(o.data) : *images;
  for (const std::string& note : setup.data.notes) context.line(note);
  take_part(setup.data, o.train_size, o.train.seed);
  const ImageData& data = setup.data;
  setup.digest =
      data_digest({data.train.images, data.train.labels, data.test.images, data.test.labels}, {data.classes});
  context.agree("data", {{"digest", setup.digest}});
  nas::NetworkOptions network{.channels = o.channels, .cells = o.cells};
  network.input_channels = data.train.images.size(1);
  network.height = data.train.images.size(2);
  network.width = data.train.images.size(3);
  network.classes = data.classes;
  network.imagenet_stem = o.imagenet;
  network.auxiliary = o.train.auxiliary > 0;
  setup.network = std::make_unique<nas::Network>(space, nas::parse_genotype(space, o.genotype), network);
  setup.training = std::make_unique<nas::Training>(
      *setup.network, DeviceImages(data.train.images, data.train.labels, data.mean, data.std, tensors),
      DeviceImages(data.test.images, data.test.labels, data.mean, data.std, tensors), o.train, setup.ranks);
  return setup;
}

nas::TrainState resumed_training(const TrainSetup& setup, const Checkpoint& checkpoint,
                                 const std::string& batch_norm, const RunContext& context) {
  require_identity(context, checkpoint, {{"data", setup.digest}},
                   fmt::format("the images or their labels have changed since the run was started; give it "
                               "the original files, or start a new run with {}",
                               named("out")));
  warn_of_other_norms(batch_norm, checkpoint, context);
  return nas::take_training(checkpoint, *setup.training);
}

std::string training_line(const nas::TrainEpoch& r, int64_t epochs) {
  return fmt::format("epoch {}/{}: loss {:.4f}, train {:.2f} %, test {:.2f} %, {:.1f} s", r.epoch, epochs,
                     r.train_loss, r.train_accuracy, r.test_accuracy, r.seconds);
}

// From the checkpoint where there is one; whether it came to the end.
bool train_in(RunContext& context, const TrainSetup& setup, const std::string& batch_norm,
              nas::TrainState& state) {
  const std::optional<Checkpoint> checkpoint = context.load();
  state = checkpoint ? resumed_training(setup, *checkpoint, batch_norm, context) : setup.training->start();
  const int64_t steps = setup.training->steps_per_epoch(), epochs = setup.training->options().epochs;
  StepProgress progress{.job = "train", .total = epochs * steps, .before = state.inner.step};
  nas::TrainHooks hooks;
  hooks.progress = [&](const nas::TrainProgress& p) {
    progress.step = (p.epoch - 1) * steps + p.step;
    progress.loss = p.loss;
    progress.more = fmt::format("epoch {}/{}", p.epoch, p.epochs);
    context.step(progress);
  };
  hooks.epoch_ended = [&](const nas::TrainState& now) {
    const nas::TrainEpoch& last = now.history.back();
    Json line = {{"step", last.epoch}};
    line.update(nas::epoch_json(last));
    context.record(line);
    context.line(training_line(last, epochs));
  };
  keep_in<nas::TrainState>(context, hooks, nas::put_training, {{"data", setup.digest}});
  return setup.training->run(state, hooks);
}

// What predict needs beside the checkpoint.
SavedModel saved_network(const TrainJobOptions& o, const TrainSetup& setup) {
  SavedModel model{.job = "train", .kind = SavedModel::Kind::network};
  model.class_names = setup.data.class_names;
  model.space = o.space;
  model.genotype = o.genotype;
  model.network = setup.network->options();
  model.mean = setup.data.mean;
  model.std = setup.data.std;
  return model;
}

Json train_json(const TrainJobResult& r, const std::string& space, const ImageData& data) {
  Json out = {
      {"space", space},
      {"genotype", r.genotype},
      {"parameters", r.parameters},
      {"multiply_adds", r.multiply_adds},
      {"data", r.data},
      {"train_images", r.train_images},
      {"test_images", r.test_images},
      {"held_out", held_out_json(data)},
      {"finished", r.end.status == RunStatus::finished},
      {"test_accuracy", r.state.history.empty() ? Json(nullptr) : Json(r.state.history.back().test_accuracy)},
      {"seconds", r.seconds}};
  if (!r.folder.empty()) out["folder"] = r.folder;
  out["history"] = Json::array();
  for (const nas::TrainEpoch& record : r.state.history) out["history"].push_back(nas::epoch_json(record));
  return out;
}

TrainJobResult run_on(const ImageData* images, TrainJobOptions o, RunContext& context) {
  TrainJobOptions defaults;
  OptionsView(o).mark_changed(OptionsView(defaults));
  if (context.resumes()) keep_batch_norm(OptionsView(o), read_stored_run(context.place().resume));
  find_genotype(o);
  complete_training(o);
  const TrainSetup setup = set_up_training(o, images, apply(o.compute, context), context);
  context.open("train", o.train.seed, OptionsView(o));
  TrainJobResult result{.genotype = o.genotype, .data = images == nullptr ? o.data.data : ""};
  result.parameters = setup.network->parameters();
  result.multiply_adds = setup.network->multiply_adds();
  result.train_images = setup.data.train.labels.numel();
  result.test_images = setup.data.test.labels.numel();
  result.folder = context.folder_name();
  context.work([&] {
    if (context.has_folder()) {
      write_file(context.folder().file("genotype.txt"), o.genotype + "\n");
      write_file(context.folder().file("genotype.json"),
                 nas::genotype_json(setup.network->genotype()) + "\n");
      write_saved_model(result.folder, saved_network(o, setup));
      result.files = {"genotype.txt", "genotype.json", "model.json", "checkpoint", "metrics.jsonl"};
    }
    if (context.shows_pictures() && can_draw()) {
      context.picture("cell", 0, picture_of(nas::genotype_dot(setup.network->genotype()), "png"));
    }
    if (!train_in(context, setup, o.batch_norm, result.state)) result.end.status = RunStatus::interrupted;
    result.seconds = result.state.seconds;
    for (const nas::TrainEpoch& record : result.state.history) result.seconds += record.seconds;
    result.json = train_json(result, o.space, setup.data);
    add_communication(setup.ranks, result.json);
    context.end(result.end.status, "", result.json);
  });
  return result;
}

}  // namespace

TrainJobResult run_train(TrainJobOptions options, RunContext& context) {
  return run_on(nullptr, std::move(options), context);
}

TrainJobResult run_train_on(const ImageData& images, TrainJobOptions options, RunContext& context) {
  const ImageData data = completed(images, /*needs_test=*/true);
  return run_on(&data, std::move(options), context);
}

}  // namespace bilevel
