#include "bilevel/data/image_data.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/idx.h"
#include "bilevel/data/image_folder.h"
#include "bilevel/data/image_sets.h"
#include "bilevel/data/labels.h"
#include "bilevel/data/large_tensor.h"
#include "bilevel/data/resize.h"
#include "bilevel/data/splits.h"

namespace bilevel {
namespace {

// N x 784 of the MNIST family as N x 1 x 28 x 28.
Tensor as_pictures(const Tensor& images) {
  return images.dim() == 2 ? images.reshape({images.size(0), 1, 28, 28}) : images;
}

ImageData load_named(const ImageDataOptions& options) {
  const ImageClasses set = load_image_classes(options.data, options.folder);
  ImageData data;
  data.train = {as_pictures(set.train.images), set.train.labels};
  data.test = {as_pictures(set.test.images), set.test.labels};
  data.class_names = set.classes;
  if (options.data == "cifar10") {  // as published with the search spaces, so that results compare
    data.mean = {125.3, 123.0, 113.9};
    data.std = {63.0, 62.1, 66.7};
  }
  return data;
}

ImageData load_folder(const ImageDataOptions& options) {
  ImageData data;
  if (!has_train_and_test(options.data)) {
    FolderImages all = read_image_folder(options.data, square(options.image_size));
    if (!all.note.empty()) data.notes.push_back(all.note);
    data.train = {all.images, all.labels};
    data.class_names = all.class_names;
    return data;
  }
  FolderImages train = read_image_folder(options.data + "/train", square(options.image_size));
  if (!train.note.empty()) data.notes.push_back(train.note);
  // Test pictures of one size may not be of the training pictures' own; a model takes one alone.
  const PictureSize size{train.images.size(2), train.images.size(3)};
  FolderImages test = read_image_folder(options.data + "/test", train.class_names, size);
  if (test.resized > 0 && options.image_size == 0) {
    data.notes.push_back(
        fmt::format("{}/test: {} of {} pictures were resized to {} x {} pixels, as in {}/train", options.data,
                    test.resized, test.labels.numel(), size.width, size.height, options.data));
  }
  // Grey in one and colour in the other: both get three channels.
  const int64_t channels = std::max(train.images.size(1), test.images.size(1));
  data.train = {train.images.expand({-1, channels, -1, -1}).contiguous(), train.labels};
  data.test = {test.images.expand({-1, channels, -1, -1}).contiguous(), test.labels};
  data.class_names = train.class_names;
  return data;
}

Tensor read_pictures(const std::string& path) {
  const Tensor images = read_idx(path);
  const bool grey = images.dim() == 3;
  const bool fits = grey || (images.dim() == 4 && (images.size(1) == 1 || images.size(1) == 3));
  if (images.scalar_type() != at::kByte || !fits || images.numel() == 0) {
    byte_error(path, 2, "bytes of N x H x W, N x 1 x H x W or N x 3 x H x W",
               fmt::format("{} of {}", at::toString(images.scalar_type()), fmt::join(images.sizes(), " x ")),
               "are the images and the labels swapped?");
  }
  return grey ? images.unsqueeze(1) : images;
}

Tensor read_labels(const std::string& path, int64_t images) {
  const Tensor labels = read_idx(path);
  if (labels.dim() != 1 || labels.numel() != images) {
    byte_error(path, 4, fmt::format("{} labels, one for each image", images),
               fmt::format("{}", fmt::join(labels.sizes(), " x ")), "are the files of one set?");
  }
  return labels;
}

ImageData load_idx(const ImageDataOptions& options) {
  if (options.labels.empty()) {
    throw std::invalid_argument(
        fmt::format("data = {} is a file of images: labels is missing, the IDX file of its labels (--labels)",
                    options.data));
  }
  ImageData data;
  data.train.images = read_pictures(options.data);
  const Tensor labels = read_labels(options.labels, data.train.images.size(0));
  const std::vector<int64_t> values = distinct_labels(labels, options.labels);
  data.train.labels = number_labels(labels, values, options.labels);
  for (const int64_t value : values) data.class_names.push_back(fmt::format("{}", value));
  if (!options.test_images.empty()) {
    data.test.images = read_pictures(options.test_images);
    data.test.labels = number_labels(read_labels(options.test_labels, data.test.images.size(0)), values,
                                     options.test_labels);
  }
  return data;
}

std::string size_text(const Tensor& images) {
  return fmt::format("{} channels of {} x {}", images.size(1), images.size(3), images.size(2));
}

}  // namespace

void ImageDataOptions::validate() const {
  if (data.empty()) throw std::invalid_argument("data is empty: must be a set's name, a folder or a file");
  if (image_size < 0 || image_size > largest_image_side) {
    throw std::invalid_argument(
        fmt::format("image_size = {}: must be 0 (as they are) to {} pixels", image_size, largest_image_side));
  }
  require_between_0_and_1("test_fraction", test_fraction);
  if (test_images.empty() != test_labels.empty()) {
    throw std::invalid_argument(fmt::format("{} is missing: test_images and test_labels go together",
                                            test_images.empty() ? "test_images" : "test_labels"));
  }
}

void hold_out_test(ImageData& data, double test_fraction) {
  const int64_t count = data.train.labels.numel();
  const auto test = static_cast<int64_t>(std::llround(test_fraction * static_cast<double>(count)));
  if (test < 1 || test >= count) {
    throw std::invalid_argument(
        fmt::format("test_fraction = {}: takes {} of {} images; both the training and the test set need "
                    "one: bring more images, or a test set",
                    test_fraction, test, count));
  }
  // From the labels and a fixed stream alone. The seed of a run must not choose: a cell that was found with
  // one seed would be tested, with another, on images that chose it. Nor may the pixels, which follow the
  // image size.
  const Splits splits = make_splits(data.train.labels, data.classes, {count - test, 0, test},
                                    Balance::proportional, named_seed(0, "held-out test images"));
  data.held_out = splits.test;
  data.test = {select_rows(data.train.images, splits.test), data.train.labels.index_select(0, splits.test)};
  data.train = {select_rows(data.train.images, splits.train),
                data.train.labels.index_select(0, splits.train)};
}

void measure_channels(const Tensor& images, std::vector<double>& mean, std::vector<double>& std) {
  if (images.dim() != 4 || images.scalar_type() != at::kByte) {
    throw std::invalid_argument("measure_channels: images must be bytes, N x C x H x W");
  }
  const Tensor here = images.contiguous();
  const uint8_t* pixel = here.data_ptr<uint8_t>();
  const int64_t channels = here.size(1);
  const int64_t area = here.size(2) * here.size(3);
  mean.assign(static_cast<size_t>(channels), 0);
  std.assign(static_cast<size_t>(channels), 1);
  for (int64_t c = 0; c < channels; ++c) {
    std::array<int64_t, 256> counts{};  // whole numbers: no order of summing can change the result
    for (int64_t i = 0; i < here.size(0); ++i) {
      const uint8_t* plane = pixel + (i * channels + c) * area;
      for (int64_t k = 0; k < area; ++k) ++counts[plane[k]];
    }
    const auto total = static_cast<double>(here.size(0) * area);
    double sum = 0;
    for (size_t v = 0; v < 256; ++v) sum += static_cast<double>(v) * static_cast<double>(counts[v]);
    const double middle = total > 0 ? sum / total : 0;
    double squares = 0;
    for (size_t v = 0; v < 256; ++v) {
      squares += std::pow(static_cast<double>(v) - middle, 2) * static_cast<double>(counts[v]);
    }
    mean[static_cast<size_t>(c)] = middle;
    if (squares > 0) std[static_cast<size_t>(c)] = std::sqrt(squares / total);
  }
}

ImageData load_image_data(const ImageDataOptions& options) {
  options.validate();
  const std::vector<std::string> names = image_set_names();
  const bool named = std::find(names.begin(), names.end(), options.data) != names.end();
  struct ::stat status {};
  const bool exists = ::stat(options.data.c_str(), &status) == 0;
  const bool is_file = !named && exists && S_ISREG(status.st_mode);
  if (!is_file && !(options.labels.empty() && options.test_images.empty())) {
    throw std::invalid_argument(
        fmt::format("data = {}: labels and test files belong to an IDX file of images", options.data));
  }
  if (!named && !exists) {
    throw std::invalid_argument(fmt::format(
        "data = {}: must be one of {}, a folder of class folders, or an IDX file of images; there "
        "is no such folder or file",
        options.data, fmt::join(names, ", ")));
  }
  ImageData data = named ? load_named(options) : is_file ? load_idx(options) : load_folder(options);
  data.classes = static_cast<int64_t>(data.class_names.size());
  if (options.image_size > 0) {
    data.train.images = resize_images(data.train.images, options.image_size);
    if (data.test.images.defined()) data.test.images = resize_images(data.test.images, options.image_size);
  }
  if (!data.test.images.defined()) hold_out_test(data, options.test_fraction);
  if (data.train.images.sizes().slice(1) != data.test.images.sizes().slice(1)) {
    throw std::runtime_error(fmt::format(
        "{}: the training images have {}, the test images {}; bring them to one size, for example with "
        "--image-size {}",
        options.data, size_text(data.train.images), size_text(data.test.images), data.train.images.size(2)));
  }
  if (data.mean.empty()) measure_channels(data.train.images, data.mean, data.std);
  return data;
}

}  // namespace bilevel
