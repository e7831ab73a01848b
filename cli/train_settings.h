#pragma once
// What a training was asked for, as its checkpoint keeps it: `bilevel train --resume` needs no other word.

#include <cstdint>
#include <string>

#include "bilevel/data/image_data.h"
#include "bilevel/nas/train_options.h"
#include "cli/json.h"

namespace bilevel::cli {

struct TrainSettings {
  std::string space = "nasbench201";
  std::string genotype = {};
  int64_t channels = 0, cells = 0;
  bool imagenet = false;
  std::string dtype = "float";
  int64_t train_size = 0;
  ImageDataOptions data = {};
  nas::TrainOptions train = {};
};

nlohmann::json settings_json(const TrainSettings& settings);
// Of a checkpoint's metadata; throws std::runtime_error naming the file and what is missing.
TrainSettings settings_from_json(const nlohmann::json& metadata, const std::string& path);

// Of the training and test labels: tells another set, another part of it or another order.
std::string labels_digest(const ImageData& data);

}  // namespace bilevel::cli
