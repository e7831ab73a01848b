#include "bilevel/clean/suspect_pictures.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "bilevel/data/png.h"
#include "bilevel/data/write_file.h"
#include "bilevel/run/json.h"

namespace bilevel {
namespace {

bool has_images(const CleaningSets& sets) {
  const std::vector<int64_t>& image = sets.image;
  return has_png() && (image.size() == 2 || (image.size() == 3 && (image[0] == 1 || image[0] == 3))) &&
         !sets.train.features.is_sparse();
}

// Bytes came in as [0, 1]; other features are shown between their own ends.
Tensor picture(const CleaningSets& sets, int64_t i) {
  std::vector<int64_t> shape = sets.image;
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  const int64_t pixels = shape[0] * shape[1] * shape[2];
  const Tensor row = sets.train.features.dense[i].narrow(0, 0, pixels).to(at::kDouble);
  const double low = std::min(0.0, row.min().item<double>()), high = std::max(1.0, row.max().item<double>());
  return ((row - low) / (high - low) * 255).round().clamp(0, 255).to(at::kByte).reshape(shape);
}

}  // namespace

void write_suspect_pictures(const CleaningSets& sets, const CleanResult& result, const std::string& folder) {
  const bool images = has_images(sets);
  const size_t count = std::min(most_suspect_pictures, result.suspects.size());
  if (images && count > 0) make_folder(folder + "/suspects");
  const auto name = [&](const Tensor& labels, int64_t i) {
    return sets.class_names.at(static_cast<size_t>(labels[i].item<int64_t>()));
  };
  Json list = Json::array();
  for (size_t k = 0; k < count; ++k) {
    const int64_t i = result.suspects[k];
    Json one = {{"index", row_in_file(sets.train_rows, i)},
                {"given", name(sets.train.labels, i)},
                {"suggested", name(result.suggested, i)},
                {"weight", number(result.weights[i].item<double>())},
                {"x", number(result.x[i].item<double>())}};
    if (sets.clean.defined()) one["truth"] = name(sets.clean, i);
    list.push_back(std::move(one));
    if (images) write_file(fmt::format("{}/suspects/{:03}.png", folder, k + 1), write_png(picture(sets, i)));
  }
  const Json json = {{"images", images}, {"class_names", sets.class_names}, {"suspects", list}};
  write_file(folder + "/suspects.json", json.dump(2) + "\n");
}

}  // namespace bilevel
