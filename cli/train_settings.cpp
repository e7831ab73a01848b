#include "cli/train_settings.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

#include "bilevel/data/sha256.h"

namespace bilevel {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AugmentOptions, crop_padding, flip, cutout)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ImageDataOptions, data, folder, labels, test_images, test_labels,
                                   image_size, test_fraction, seed)

namespace nas {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainOptions, epochs, batch, rate, schedule, warmup_epochs, momentum,
                                   nesterov, weight_decay, clip, drop_path, auxiliary, label_smoothing,
                                   augment, seed, test_batch)
}  // namespace nas

namespace cli {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainSettings, space, genotype, channels, cells, imagenet, dtype,
                                   train_size, data, train)

nlohmann::json settings_json(const TrainSettings& settings) { return settings; }

TrainSettings settings_from_json(const nlohmann::json& metadata, const std::string& path) {
  try {
    return metadata.at("settings").get<TrainSettings>();
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format(
        "{}: it holds no settings of a training, or those of another version: {}", path, error.what()));
  }
}

std::string labels_digest(const ImageData& data) {
  Sha256 digest;
  for (const Tensor& labels : {data.train_labels, data.test_labels}) {
    const Tensor here = labels.contiguous();
    digest.add({reinterpret_cast<const char*>(here.data_ptr<int64_t>()),
                static_cast<size_t>(here.numel()) * sizeof(int64_t)});
  }
  return digest.hex();
}

}  // namespace cli
}  // namespace bilevel
