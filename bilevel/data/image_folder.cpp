#include "bilevel/data/image_folder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "bilevel/data/file_error.h"
#include "bilevel/data/folder.h"
#include "bilevel/data/large_tensor.h"
#include "bilevel/data/parallel_files.h"
#include "bilevel/data/picture.h"
#include "bilevel/data/resize.h"

namespace bilevel {
namespace {

std::vector<std::string> pictures_of_class(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (is_folder(path)) {
      file_error(path, "a PNG or JPEG file of a class", "a folder",
                 "the folder to give is the one that holds the class folders, or their train/ and test/");
    }
  }
  return picture_files(folder);
}

struct ImageFile {
  std::string path;
  int64_t label;
};

// What most pictures have, or, where sizes are many, what no picture has to grow for.
PictureSize common_size(const std::vector<std::string>& files, std::string& note) {
  const auto count = static_cast<int64_t>(files.size());
  std::vector<PictureSize> sizes(files.size());
  parallel_files(
      count, [&](int64_t i) { sizes[static_cast<size_t>(i)] = picture_size(files[static_cast<size_t>(i)]); });
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  for (const PictureSize& size : sizes) ++counts[{size.height, size.width}];
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto area = [](const auto& of) { return of.first.first * of.first.second; };
  const auto least = std::min_element(counts.begin(), counts.end(),
                                      [&](const auto& a, const auto& b) { return area(a) < area(b); });
  const bool has_common = 2 * most->second >= count;
  const auto [height, width] = has_common ? most->first : least->first;
  note = fmt::format(
      "pictures of {} sizes: all were resized to {} x {} pixels (width x height), the size of {}; "
      "--image-size chooses another",
      counts.size(), width, height,
      has_common ? fmt::format("{} of {}", most->second, count) : "the smallest one");
  return {height, width};
}

std::vector<std::string> class_folders(const std::string& folder) {
  std::vector<std::string> classes;
  for (const std::string& name : names_in(folder)) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (is_folder(path)) {
      classes.push_back(name);
    } else if (is_picture_name(name) || is_other_picture_name(name)) {
      file_error(path, "a folder for each class", "an image", "put it into the folder of its class");
    }
  }
  return classes;
}

}  // namespace

FolderImages read_pictures(const std::vector<std::string>& files, PictureSize size) {
  FolderImages result;
  const auto count = static_cast<int64_t>(files.size());
  const Tensor first = read_picture(files[0]);
  int64_t channels = first.size(0);
  std::atomic<bool> mixed = false, coloured = false;
  std::atomic<int64_t> resized = 0;
  const auto read_all = [&](PictureSize to) {
    mixed = coloured = false;
    resized = 0;
    result.images = empty_in_memory_or_file({count, channels, to.height, to.width}, at::kByte);
    parallel_files(count, [&](int64_t i) {
      if (mixed || coloured) return;
      Tensor picture = i == 0 ? first : read_picture(files[static_cast<size_t>(i)]);
      if (picture.size(0) > channels) {
        coloured = true;
        return;
      }
      if (picture.size(1) != to.height || picture.size(2) != to.width) {
        if (!size.is_set()) {
          mixed = true;
          return;
        }
        ++resized;
        picture = resize_images(picture.unsqueeze(0), to).squeeze(0);
      }
      result.images[i].copy_(picture);  // grey becomes three equal channels by broadcasting
    });
    return !mixed && !coloured;
  };
  // Most folders have one size and are grey or coloured: pictures go where they belong until one differs from
  // the first. Then all are read again.
  PictureSize to = size.is_set() ? size : PictureSize{first.size(1), first.size(2)};
  while (!read_all(to)) {
    if (coloured) channels = 3;
    if (mixed) to = size = common_size(files, result.note);
  }
  result.resized = resized;
  return result;
}

bool has_train_and_test(const std::string& folder) {
  return is_folder(folder + "/train") && is_folder(folder + "/test");
}

FolderImages read_image_folder(const std::string& folder, PictureSize size) {
  const std::vector<std::string> classes = class_folders(folder);
  if (classes.size() < 2) {
    file_error(folder, "two or more folders, one for each class",
               classes.empty() ? "none" : fmt::format("only {}", classes[0]),
               "put the PNG or JPEG files of each class into a folder of its own");
  }
  FolderImages result = read_image_folder(folder, classes, size);
  const Tensor counts = at::bincount(result.labels, {}, static_cast<int64_t>(classes.size()));
  for (size_t k = 0; k < classes.size(); ++k) {
    if (counts[static_cast<int64_t>(k)].item<int64_t>() == 0) {
      file_error(fmt::format("{}/{}", folder, classes[k]), "PNG or JPEG files of the class", "none",
                 "remove the folder, or put the class's images into it");
    }
  }
  return result;
}

FolderImages read_image_folder(const std::string& folder, const std::vector<std::string>& class_names,
                               PictureSize size) {
  std::vector<ImageFile> files;
  for (const std::string& name : class_folders(folder)) {
    const std::string path = fmt::format("{}/{}", folder, name);
    const auto found = std::find(class_names.begin(), class_names.end(), name);
    if (found == class_names.end()) {
      file_error(path, "a folder named like a training class", fmt::format("\"{}\"", name),
                 "remove it, or give the class training images");
    }
    for (const std::string& file : pictures_of_class(path))
      files.push_back({file, found - class_names.begin()});
  }
  if (files.empty()) {
    file_error(folder, "PNG or JPEG files in folders named like their classes", "none", "check the path");
  }
  std::vector<std::string> paths;
  std::vector<int64_t> labels;
  for (const ImageFile& file : files) {
    paths.push_back(file.path);
    labels.push_back(file.label);
  }
  FolderImages result = read_pictures(paths, size);
  if (!result.note.empty()) result.note = fmt::format("{}: {}", folder, result.note);
  result.labels = at::tensor(labels, at::TensorOptions().dtype(at::kLong));
  result.class_names = class_names;
  return result;
}

}  // namespace bilevel
