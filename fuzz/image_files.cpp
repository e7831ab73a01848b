// A pair of IDX files as the image data of a search: the first two bytes say where the images end and the
// labels begin.
#include <ATen/ATen.h>

#include <algorithm>

#include "bilevel/data/image_data.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_image_files(std::string_view bytes) {
  if (bytes.size() < 2) return 0;
  const size_t split = static_cast<unsigned char>(bytes[0]) + 256U * static_cast<unsigned char>(bytes[1]);
  bytes.remove_prefix(2);
  const std::string_view images = bytes.substr(0, split);
  ImageDataOptions options;
  options.data = path_of(images, 0);
  options.labels = path_of(bytes.substr(images.size()), 1);
  const auto load = [&] {
    const ImageData data = load_image_data(options);
    require(data.train.labels.lt(data.classes).all().item<bool>(), "images: a label beyond the classes");
    require(data.train.labels.numel() == data.train.images.size(0), "images: other numbers of labels");
  };
  int result = 0;
  // Too few images to hold some out is a fault of the option, and said so.
  (void)taken<std::invalid_argument>([&] { result = taken(load); });
  return result;
}

const Register image_files_target("image_files", give_image_files);

}  // namespace
}  // namespace bilevel::fuzz
