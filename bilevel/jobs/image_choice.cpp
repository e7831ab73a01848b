#include "bilevel/jobs/image_choice.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <tuple>

#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/data_digest.h"

namespace bilevel {

constexpr const char* images_heading = "images";

const Fields<ImageDataOptions>& image_fields() {
  static const Fields<ImageDataOptions> table = [] {
    using O = ImageDataOptions;
    Fields<O> f;
    f.heading(images_heading);
    f.add(
         "data", [](O & o) -> auto& { return o.data; },
         "cifar10, cifar100, mnist, fashion-mnist; a folder with a folder of PNG or JPEG files for each "
         "class, perhaps below train/ and test/; or an IDX file of images")
        .is(FieldKind::place)
        .first();
    f.add(
         "data_dir", [](O & o) -> auto& { return o.folder; },
         "folder of the named data sets, fetched or unpacked")
        .is(FieldKind::place)
        .from_environment("BILEVEL_DATA");
    f.add(
         "labels", [](O & o) -> auto& { return o.labels; }, "IDX file of labels, for an IDX file of images")
        .is(FieldKind::place);
    f.add(
         "test_images", [](O & o) -> auto& { return o.test_images; },
         "IDX file of test images; default: a fifth is held out, the same for every seed")
        .is(FieldKind::place);
    f.add(
         "test_labels", [](O & o) -> auto& { return o.test_labels; }, "IDX file of the test images' labels")
        .is(FieldKind::place);
    f.add(
         "image_size", [](O & o) -> auto& { return o.image_size; },
         "rescale images to this height and width; 0 = as they are or, if a folder has several sizes, the "
         "most common or the smallest size")
        .in(at_least(0, bounds::side))
        .first();
    return f;
  }();
  return table;
}

const Fields<AugmentOptions>& augment_fields() {
  static const Fields<AugmentOptions> table = [] {
    using O = AugmentOptions;
    Fields<O> f;
    f.heading(images_heading);
    f.add(
         "crop_padding", [](O & o) -> auto& { return o.crop_padding; },
         "random crops of images padded by this many pixels; 0 = none")
        .in(at_least(0, bounds::side));
    f.add(
        "flip", [](O & o) -> auto& { return o.flip; },
        "flip images left to right with probability 1/2 (default)");
    f.add(
         "cutout", [](O & o) -> auto& { return o.cutout; },
         "side of the square that is blanked in each image; 0 = none")
        .in(at_least(0, bounds::side));
    return f;
  }();
  return table;
}

namespace {

void require_labels(const LabelledImages& set, const std::string& images_name, const std::string& labels_name,
                    const Tensor& like) {
  const auto& [images, labels] = set;
  if (images.size(0) != labels.numel()) {
    throw OptionError(fmt::format("{} holds {} images and {} holds {}: give one label for each image",
                                  named(images_name), images.size(0), named(labels_name), labels.numel()));
  }
  if (images.sizes().slice(1) != like.sizes().slice(1)) {
    throw OptionError(
        fmt::format("{} holds images of {}, and {} of {} (channels x height x width): give both "
                    "alike",
                    named(images_name), fmt::join(images.sizes().slice(1), " x "), named("data"),
                    fmt::join(like.sizes().slice(1), " x ")));
  }
}

}  // namespace

ImageData completed(ImageData images, bool needs_test) {
  require_labels(images.train, "data", "labels", images.train.images);
  if (images.test.images.defined()) {
    require_labels(images.test, "test_images", "test_labels", images.train.images);
  }
  for (auto k = static_cast<int64_t>(images.class_names.size()); k < images.classes; ++k) {
    images.class_names.push_back(fmt::to_string(k));
  }
  if (needs_test && !images.test.images.defined()) hold_out_test(images);
  if (images.mean.empty()) measure_channels(images.train.images, images.mean, images.std);
  return images;
}

Json held_out_json(const ImageData& data) {
  if (!data.held_out.defined()) return nullptr;
  const Tensor positions = std::get<0>(data.held_out.sort());
  return {{"images", positions.numel()}, {"digest", data_digest({positions}, {}).substr(0, 16)}};
}

}  // namespace bilevel
