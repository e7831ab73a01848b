// `predict` on pictures: by a trained network, or by what was learned across tasks.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bilevel/data/augment.h"
#include "bilevel/data/folder.h"
#include "bilevel/data/idx.h"
#include "bilevel/data/image_folder.h"
#include "bilevel/data/picture.h"
#include "bilevel/data/resize.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/adapt.h"
#include "bilevel/jobs/export_model.h"
#include "bilevel/jobs/predict_run.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/run/run_context.h"

namespace bilevel {
namespace {

constexpr int64_t pictures_at_once = 128;

std::vector<std::string> pictures_to_predict(const std::string& data) {
  if (!is_folder(data)) return {data};
  std::vector<std::string> files = picture_files(data);
  if (files.empty()) {  // folders of classes, say, whose names are not needed
    for (const std::string& name : names_in(data)) {
      const std::string inside = fmt::format("{}/{}", data, name);
      if (!is_folder(inside)) continue;
      const std::vector<std::string> more = picture_files(inside);
      files.insert(files.end(), more.begin(), more.end());
    }
  }
  if (files.empty()) {
    throw OptionError(fmt::format("{}: there is no PNG or JPEG file in it", named("data", data)));
  }
  return files;
}

Tensor as_channels(const Tensor& images, int64_t channels, const std::string& what) {
  if (images.size(1) == channels) return images;
  if (images.size(1) == 1) return images.expand({-1, channels, -1, -1}).contiguous();
  throw OptionError(fmt::format(
      "{}: colour pictures, but the network was trained on grey ones: convert them to grey", what));
}

// A file of many images; empty where it is none.
Tensor read_idx_images(const std::string& path, PictureSize size) {
  if (is_folder(path) || is_picture_name(path)) return {};
  Tensor images = read_idx(path);
  if (images.scalar_type() != at::kByte || images.dim() < 3 || images.dim() > 4 || images.numel() == 0) {
    throw OptionError(
        fmt::format("{}: must be a folder of PNG or JPEG files, one of them, or an IDX file of images",
                    named("data", path)));
  }
  if (images.dim() == 3) images = images.unsqueeze(1);
  return resize_images(images, size);
}

}  // namespace

void predict_pictures(const PredictJobOptions& o, const ModelInUse& used, const at::TensorOptions& tensors,
                      RunContext& context, PredictJobResult& result) {
  const SavedModel& model = used.saved;
  const nas::SearchSpace space = nas::make_space(model.space);
  const nas::Network network(space, nas::parse_genotype(space, model.genotype), model.network);
  const TrainedWeights trained =
      used.is_file ? trained_weights_of(used.file, network, o.run) : trained_weights(o.run, network);
  const Tensor w = trained.w.to(tensors);
  const Normalization normalization(model.mean, model.std, tensors);
  const nas::PassOptions pass{.norm = nas::Norm::remembered, .statistics = trained.statistics.to(tensors)};
  const PictureSize size{model.network.height, model.network.width};
  const Tensor images = read_idx_images(o.data, size);
  if (images.defined()) {
    for (int64_t i = 0; i < images.size(0); ++i) result.rows.push_back(i);
  } else {
    result.files = pictures_to_predict(o.data);
  }
  const at::AutoGradMode no_gradient(false);
  std::vector<Tensor> parts;
  const auto count = static_cast<int64_t>(result.size());
  for (int64_t begin = 0; begin < count; begin += pictures_at_once) {
    const int64_t end = std::min(begin + pictures_at_once, count);
    context.progress(fmt::format("predict: {} of {}", begin, count));
    Tensor some;
    if (images.defined()) {
      some = images.narrow(0, begin, end - begin);
    } else {
      some = read_pictures({result.files.begin() + begin, result.files.begin() + end}, size).images;
    }
    some = as_channels(some, model.network.input_channels, named("data", o.data));
    const Tensor batch = prepare_plain(some.to(tensors.device()), {}, normalization);
    parts.push_back(network.forward(w, batch, pass).logits.to(at::kCPU, at::kDouble));
  }
  result.probabilities = at::cat(parts).softmax(1);
}

void predict_few_shot(const PredictJobOptions& o, RunContext& context, PredictJobResult& result) {
  if (o.support.empty()) {
    throw OptionError(
        fmt::format("{}: a run of learn has no classes of its own: give a folder with a few pictures of each "
                    "class with {}",
                    named("run", o.run), named("support")));
  }
  AdaptJobOptions adapt;
  adapt.run = o.run;
  adapt.support = o.support;
  adapt.images = o.data;
  adapt.compute = o.compute;
  const AdaptJobResult adapted = run_adapt(adapt, context);
  result.job = "learn";
  result.classes = adapted.classes;
  result.files = adapted.files;
  result.probabilities = adapted.probabilities;
}

}  // namespace bilevel
