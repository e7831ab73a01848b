#include "cli/clean_pictures.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "bilevel/data/png.h"
#include "bilevel/data/write_file.h"

namespace bilevel::cli {
namespace {

bool has_images(const CleanOutput& o) {
  const std::vector<int64_t>& image = o.sets.image;
  return has_png() && (image.size() == 2 || (image.size() == 3 && (image[0] == 1 || image[0] == 3))) &&
         !o.sets.train.features.is_sparse();
}

// Bytes came in as [0, 1]; other features are shown between their own ends.
Tensor picture(const CleanOutput& o, int64_t i) {
  std::vector<int64_t> shape = o.sets.image;
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  const int64_t pixels = shape[0] * shape[1] * shape[2];
  const Tensor row = o.sets.train.features.dense[i].narrow(0, 0, pixels).to(at::kDouble);
  const double low = std::min(0.0, row.min().item<double>()), high = std::max(1.0, row.max().item<double>());
  return ((row - low) / (high - low) * 255).round().clamp(0, 255).to(at::kByte).reshape(shape);
}

}  // namespace

void write_suspect_pictures(const CleanOutput& o) {
  const bool images = has_images(o);
  const size_t count = std::min(most_pictures, o.report.suspects.size());
  if (images && count > 0) make_folder(o.folder + "/suspects", "--out");
  const auto name = [&](const Tensor& labels, int64_t i) {
    return o.sets.class_names.at(static_cast<size_t>(labels[i].item<int64_t>()));
  };
  Json list = Json::array();
  for (size_t k = 0; k < count; ++k) {
    const int64_t i = o.report.suspects[k];
    Json one = {{"index", i},
                {"given", name(o.sets.train.labels, i)},
                {"suggested", name(o.report.suggested, i)},
                {"weight", number(o.report.weights[i].item<double>())},
                {"x", number(o.report.x[i].item<double>())}};
    if (o.sets.clean.defined()) one["truth"] = name(o.sets.clean, i);
    list.push_back(std::move(one));
    if (images) write_file(fmt::format("{}/suspects/{:03}.png", o.folder, k + 1), write_png(picture(o, i)));
  }
  const Json json = {{"images", images}, {"class_names", o.sets.class_names}, {"suspects", list}};
  write_file(o.folder + "/suspects.json", json.dump(2) + "\n");
}

}  // namespace bilevel::cli
