#include "bilevel/data/image_folder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "bilevel/data/file_error.h"
#include "bilevel/data/folder.h"
#include "bilevel/data/parallel_files.h"
#include "bilevel/data/png.h"
#include "bilevel/data/resize.h"

namespace bilevel {
namespace {

std::string ending_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  std::string ending = dot == std::string::npos ? "" : name.substr(dot);
  for (char& letter : ending) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return ending;
}

// Images of a format that is not read must not be left out of a class without a word.
bool is_other_image(const std::string& ending) {
  constexpr std::array others{".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"};
  return std::find(others.begin(), others.end(), ending) != others.end();
}

std::vector<std::string> png_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const std::string& name : names_in(folder)) {
    const std::string path = fmt::format("{}/{}", folder, name);
    const std::string ending = ending_of(name);
    if (is_folder(path)) {
      file_error(path, "a PNG file of a class", "a folder",
                 "the folder to give is the one that holds the class folders, or their train/ and test/");
    }
    if (ending == ".png") {
      files.push_back(path);
    } else if (is_other_image(ending)) {
      file_error(path, "a PNG file", fmt::format("a {} file", ending), "convert the images to PNG");
    }
  }
  return files;
}

struct ImageFile {
  std::string path;
  int64_t label;
};

// All images, put together when it is known whether any has colours.
FolderImages read_images(const std::vector<ImageFile>& files, int64_t image_size) {
  std::vector<Tensor> images(files.size());
  const auto read = [&](int64_t i) {
    const std::string& path = files[static_cast<size_t>(i)].path;
    Tensor& image = images[static_cast<size_t>(i)];
    image = read_png(path);
    if (image_size > 0) {
      image = resize_images(image.unsqueeze(0), image_size).squeeze(0);
    } else if (image.sizes().slice(1) != images[0].sizes().slice(1)) {
      file_error(path,
                 fmt::format("{} x {} pixels as in {}", images[0].size(2), images[0].size(1), files[0].path),
                 fmt::format("{} x {}", image.size(2), image.size(1)),
                 "bring the images to one size, for example with --image-size 32");
    }
  };
  read(0);
  const auto count = static_cast<int64_t>(files.size());
  parallel_files(count - 1, [&](int64_t i) { read(i + 1); });
  int64_t channels = 1;
  std::vector<int64_t> labels;
  for (const Tensor& image : images) channels = std::max(channels, image.size(0));
  for (const ImageFile& file : files) labels.push_back(file.label);
  FolderImages result;
  result.labels = at::tensor(labels, at::TensorOptions().dtype(at::kLong));
  result.images = at::empty({count, channels, images[0].size(1), images[0].size(2)}, images[0].options());
  for (int64_t i = 0; i < count; ++i) {
    Tensor& image = images[static_cast<size_t>(i)];
    result.images[i].copy_(image);  // grey becomes three equal channels by broadcasting
    image.reset();
  }
  return result;
}

std::vector<std::string> class_folders(const std::string& folder) {
  std::vector<std::string> classes;
  for (const std::string& name : names_in(folder)) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (is_folder(path)) {
      classes.push_back(name);
    } else if (ending_of(name) == ".png" || is_other_image(ending_of(name))) {
      file_error(path, "a folder for each class", "an image", "put it into the folder of its class");
    }
  }
  return classes;
}

}  // namespace

bool has_train_and_test(const std::string& folder) {
  return is_folder(folder + "/train") && is_folder(folder + "/test");
}

FolderImages read_image_folder(const std::string& folder, int64_t image_size) {
  const std::vector<std::string> classes = class_folders(folder);
  if (classes.size() < 2) {
    file_error(folder, "two or more folders, one for each class",
               classes.empty() ? "none" : fmt::format("only {}", classes[0]),
               "put the PNG files of each class into a folder of its own");
  }
  FolderImages result = read_image_folder(folder, classes, image_size);
  const Tensor counts = at::bincount(result.labels, {}, static_cast<int64_t>(classes.size()));
  for (size_t k = 0; k < classes.size(); ++k) {
    if (counts[static_cast<int64_t>(k)].item<int64_t>() == 0) {
      file_error(fmt::format("{}/{}", folder, classes[k]), "PNG files of the class", "none",
                 "remove the folder, or put the class's images into it");
    }
  }
  return result;
}

FolderImages read_image_folder(const std::string& folder, const std::vector<std::string>& class_names,
                               int64_t image_size) {
  std::vector<ImageFile> files;
  for (const std::string& name : class_folders(folder)) {
    const std::string path = fmt::format("{}/{}", folder, name);
    const auto found = std::find(class_names.begin(), class_names.end(), name);
    if (found == class_names.end()) {
      file_error(path, "a folder named like a training class", fmt::format("\"{}\"", name),
                 "remove it, or give the class training images");
    }
    for (const std::string& file : png_files(path)) files.push_back({file, found - class_names.begin()});
  }
  if (files.empty()) {
    file_error(folder, "PNG files in folders named like their classes", "none", "check the path");
  }
  FolderImages result = read_images(files, image_size);
  result.class_names = class_names;
  return result;
}

}  // namespace bilevel
