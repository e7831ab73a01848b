#include "bilevel/meta/task_folder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "bilevel/data/class_images.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/folder.h"
#include "bilevel/data/image_folder.h"

namespace bilevel::meta {
namespace {

struct PartFolder {
  Part part;
  std::string path;
};

// Empty for a folder of class folders.
std::vector<PartFolder> part_folders(const std::string& folder) {
  const auto inside = [&](const char* name) { return fmt::format("{}/{}", folder, name); };
  if (!has_train_and_test(folder)) return {};
  const bool val = is_folder(inside("val")), valid = is_folder(inside("valid"));
  if (val == valid) {
    file_error(folder, "val or valid beside train and test", val ? "both" : "neither",
               "learning needs validation classes of its own: move some class folders from train to val");
  }
  return {{Part::train, inside("train")},
          {Part::valid, inside(val ? "val" : "valid")},
          {Part::test, inside("test")}};
}

ImageTaskSet read_parted(const std::vector<PartFolder>& folders, int64_t image_size) {
  std::vector<FolderImages> read;
  int64_t channels = 1;
  std::string note;
  for (const PartFolder& folder : folders) {
    const PictureSize size =
        read.empty() ? square(image_size) : PictureSize{read[0].images.size(2), read[0].images.size(3)};
    read.push_back(read_image_folder(folder.path, size));
    if (!read.back().note.empty()) note = read.back().note;
    if (read.back().resized > 0 && read.size() > 1 && image_size == 0) {
      note += fmt::format("{}{}: {} of {} pictures were resized to {} x {} pixels, as in {}",
                          note.empty() ? "" : "; ", folder.path, read.back().resized,
                          read.back().labels.numel(), size.width, size.height, folders[0].path);
    }
    channels = std::max(channels, read.back().images.size(1));
  }
  ImageTaskSet set;
  set.note = note;
  std::map<std::string, std::string> seen;  // class -> its folder
  std::vector<Tensor> images, labels;
  for (size_t i = 0; i < folders.size(); ++i) {
    const Tensor& here = read[i].images;
    const auto offset = static_cast<int64_t>(set.images.names.size());
    for (const std::string& name : read[i].class_names) {
      const std::string path = fmt::format("{}/{}", folders[i].path, name);
      const auto [place, is_new] = seen.emplace(name, path);
      if (!is_new) {
        file_error(path, "classes that are in one part only",
                   fmt::format("the class in {} too", place->second),
                   "keep it in one of them: what is learned is judged on classes that it has not seen");
      }
      set.parts.of(folders[i].part).push_back(static_cast<int64_t>(set.images.names.size()));
      set.images.names.push_back(name);
    }
    images.push_back(here.expand({-1, channels, -1, -1}));  // grey as three equal channels
    labels.push_back(read[i].labels + offset);
  }
  set.images = group_by_class(at::cat(images), at::cat(labels), set.images.names);
  return set;
}

}  // namespace

ImageTaskSet read_task_folder(const std::string& folder, int64_t image_size) {
  if (!is_folder(folder)) file_error(folder, "a folder", "none", "check the path");
  const std::vector<PartFolder> parts = part_folders(folder);
  ImageTaskSet set;
  if (!parts.empty()) {
    set = read_parted(parts, image_size);
  } else {
    const FolderImages read = read_image_folder(folder, square(image_size));
    set.images = group_by_class(read.images, read.labels, read.class_names);
    set.note = read.note;
    set.parts = split_classes(set.images.classes(), 64, 16, 20, /*seed=*/0);
    if (set.parts.train.empty()) {
      file_error(folder, "classes for three parts", fmt::format("{}", set.images.classes()),
                 "bring more class folders");
    }
  }
  set.name = folder;
  set.scale = training_scale(set.images, set.parts);
  return set;
}

}  // namespace bilevel::meta
