// `bilevel adapt`: what `bilevel learn` learned, used on a person's own few
// images.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/data/folder.h"
#include "bilevel/data/image_folder.h"
#include "bilevel/data/png.h"
#include "bilevel/data/resize.h"
#include "bilevel/data/write_file.h"
#include "bilevel/meta/model_file.h"
#include "bilevel/meta/task_loss.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string run, support, images, out;
};

struct Predictions {
  std::vector<std::string> files, classes;
  Tensor probabilities;         // files x classes; double, CPU
  std::vector<int64_t> counts;  // support images of each class
  double support_accuracy = 0;  // of the few images themselves, once learned from
};

bool is_png(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (name[0] == '.' || dot == std::string::npos) return false;
  const std::string ending = name.substr(dot);
  return ending == ".png" || ending == ".PNG";
}

std::vector<std::string> png_files(const std::string& folder) {
  if (!is_folder(folder)) throw std::invalid_argument(fmt::format("--images {}: is no folder", folder));
  std::vector<std::string> files;
  for (const std::string& name : names_in(folder)) {
    if (is_png(name)) files.push_back(folder + "/" + name);
  }
  if (files.empty()) {
    throw std::invalid_argument(fmt::format("--images {}: there is no PNG file in it", folder));
  }
  return files;
}

// Grey images serve a network that learned on colours; not the other way round.
Tensor with_channels(const Tensor& images, int64_t channels, const std::string& what) {
  if (images.size(1) == channels) return images;
  if (images.size(1) == 1) return images.expand({-1, channels, -1, -1});
  throw std::invalid_argument(
      fmt::format("{}: colour images, but the network learned on grey ones: convert them to grey", what));
}

Predictions predict(const Options& o, const meta::LearnedModel& model, const at::TensorOptions& tensors) {
  if (model.input.size() != 3 || !model.scale) {
    throw std::invalid_argument(
        fmt::format("--run {}: it learned on {}, which are no images", o.run, model.data));
  }
  const int64_t channels = model.input[0], side = model.input[1];
  const FolderImages support = read_image_folder(o.support, side);
  Predictions result;
  result.classes = support.class_names;
  const auto ways = static_cast<int64_t>(result.classes.size());
  for (int64_t c = 0; c < ways; ++c) result.counts.push_back(support.labels.eq(c).sum().item<int64_t>());
  result.files = png_files(o.images);
  std::vector<Tensor> images = {with_channels(support.images, channels, "--support " + o.support)};
  for (const std::string& file : result.files) {
    images.push_back(with_channels(resize_images(read_png(file).unsqueeze(0), side), channels, file));
  }
  const meta::Learner learner = model.make_learner(ways, tensors);

  // Batch norm takes its statistics from what it sees at once: the few known
  // images beside the new ones keep one new image from being its own mean.
  const Tensor pixels = meta::scale_pixels(at::cat(images), *model.scale, tensors);
  const int64_t known = support.images.size(0);
  meta::TaskBatch task;
  task.train_inputs = pixels.narrow(0, 0, known).unsqueeze(0);
  task.train_targets = support.labels.unsqueeze(0);
  task.valid_inputs = pixels.unsqueeze(0);
  task.valid_targets = at::zeros({1, pixels.size(0)}, at::kLong);
  const Tensor outputs =
      learner.outputs(model.x.to(tensors), task, model.iterations)[0].to(at::kCPU, at::kDouble);
  result.support_accuracy =
      meta::task_accuracies(outputs.narrow(0, 0, known).unsqueeze(0), task.train_targets).item<double>();
  result.probabilities = outputs.narrow(0, known, outputs.size(0) - known).softmax(1).contiguous();
  return result;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + "\"";
}

std::string csv_of(const Predictions& p, const Tensor& best) {
  std::string text = "file,class,confidence";
  for (const std::string& name : p.classes) text += "," + quoted(name);
  text += "\n";
  const double* row = p.probabilities.data_ptr<double>();
  for (size_t i = 0; i < p.files.size(); ++i) {
    const auto k = static_cast<size_t>(best[static_cast<int64_t>(i)].item<int64_t>());
    text += fmt::format("{},{},{:.6f}", quoted(p.files[i]), quoted(p.classes[k]), row[k]);
    for (size_t c = 0; c < p.classes.size(); ++c) text += fmt::format(",{:.6f}", row[c]);
    text += "\n";
    row += p.classes.size();
  }
  return text;
}

Json json_of(const Options& o, const Predictions& p, const Tensor& best) {
  Json out = {{"run", o.run}, {"support_accuracy", p.support_accuracy}, {"classes", Json::array()}};
  for (size_t c = 0; c < p.classes.size(); ++c) {
    out["classes"].push_back({{"name", p.classes[c]}, {"images", p.counts[c]}});
  }
  out["predictions"] = Json::array();
  const double* row = p.probabilities.data_ptr<double>();
  for (size_t i = 0; i < p.files.size(); ++i) {
    const auto k = static_cast<size_t>(best[static_cast<int64_t>(i)].item<int64_t>());
    Json one = {{"file", p.files[i]}, {"class", p.classes[k]}, {"confidence", row[k]}};
    one["probabilities"] = std::vector<double>(row, row + p.classes.size());
    out["predictions"].push_back(one);
    row += p.classes.size();
  }
  return out;
}

int run(const Options& o) {
  const at::TensorOptions tensors = apply_common_options(o.common);
  const std::string learned = o.run + "/model";
  if (!std::filesystem::exists(learned) && !std::filesystem::exists(learned + ".previous")) {
    throw std::invalid_argument(fmt::format(
        "--run {}: there is no model in it; name the folder of a `bilevel learn` that has saved one "
        "(`bilevel runs` lists them)",
        o.run));
  }
  const meta::LearnedModel model = meta::load_model(learned);
  const Predictions p = predict(o, model, tensors);
  const Tensor best = p.probabilities.argmax(1);
  if (!o.out.empty()) write_file(o.out, csv_of(p, best));
  if (o.common.json) {
    fmt::print("{}\n", json_of(o, p, best).dump());
    return success;
  }
  fmt::print("{} classes, {} images to learn from ({:.1f} % of them recognised afterwards)\n\n",
             p.classes.size(), std::accumulate(p.counts.begin(), p.counts.end(), int64_t{0}),
             p.support_accuracy);
  size_t width = 4;
  for (const std::string& file : p.files) width = std::max(width, file.size());
  fmt::print("{:<{}}  {:>10}  class\n", "file", width, "confidence");
  for (size_t i = 0; i < p.files.size(); ++i) {
    const int64_t k = best[static_cast<int64_t>(i)].item<int64_t>();
    fmt::print("{:<{}}  {:>8.1f} %  {}\n", p.files[i], width,
               100 * p.probabilities[static_cast<int64_t>(i)][k].item<double>(),
               p.classes[static_cast<size_t>(k)]);
  }
  if (!o.out.empty()) fmt::print("\nwritten to {}\n", o.out);
  return success;
}

}  // namespace

void add_adapt_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("adapt", "Recognise one's own images from a few of each class, by what was learned");
  command->footer(
      "The support folder has a folder of PNG files for each class; the images to be recognised are PNG "
      "files in a folder.\n"
      "Examples:\n"
      "  bilevel adapt --run runs/learn-20260101-120000-0 --support my-letters/ --images new/ --out "
      "predictions.csv");
  const auto options = std::make_shared<Options>();
  command->add_option("--run", options->run, "folder of a `bilevel learn` run on images")->required();
  command->add_option("--support", options->support, "folder of class folders, a few PNG files in each")
      ->required();
  command->add_option("--images", options->images, "folder of PNG files to recognise")->required();
  command->add_option("--out", options->out, "CSV file of the predictions");
  options->common.dtype = "float";
  add_common_options(*command, options->common);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace bilevel::cli
