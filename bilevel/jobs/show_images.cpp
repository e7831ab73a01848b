#include "bilevel/jobs/show_images.h"

#include <ATen/ATen.h>

#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/image_choice.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

const Fields<ShowImagesOptions>& ShowImagesOptions::fields() {
  static const Fields<ShowImagesOptions> table = [] {
    Fields<ShowImagesOptions> f;
    f.include(
        [](ShowImagesOptions & o) -> auto& { return o.images; }, image_fields());
    for (const Field& field : image_fields().rows()) f.row(field.name).group.clear();
    f.row("data").required();
    return f;
  }();
  return table;
}

namespace {

std::vector<int64_t> count_classes(const Tensor& labels, int64_t classes) {
  const Tensor counts = at::bincount(labels, {}, classes);
  return {counts.data_ptr<int64_t>(), counts.data_ptr<int64_t>() + counts.numel()};
}

}  // namespace

ShowImagesResult run_show_images(ShowImagesOptions o, RunContext& context) {
  OptionsView(o).require_all();
  ShowImagesResult result{.name = o.images.data, .data = load_image_data(o.images)};
  const ImageData& data = result.data;
  for (const std::string& note : data.notes) context.line(note);
  result.train = count_classes(data.train.labels, data.classes);
  result.test = count_classes(data.test.labels, data.classes);
  Json classes = Json::array();
  for (size_t k = 0; k < result.train.size(); ++k) {
    classes.push_back({{"name", data.class_names[k]}, {"train", result.train[k]}, {"test", result.test[k]}});
  }
  result.json = {{"data", result.name},
                 {"train", data.train.labels.numel()},
                 {"test", data.test.labels.numel()},
                 {"held_out", held_out_json(data)},
                 {"channels", data.train.images.size(1)},
                 {"height", data.train.images.size(2)},
                 {"width", data.train.images.size(3)},
                 {"mean", data.mean},
                 {"std", data.std},
                 {"classes", classes}};
  return result;
}

}  // namespace bilevel
