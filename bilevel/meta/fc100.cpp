#include "bilevel/meta/fc100.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "bilevel/data/class_images.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/image_sets.h"

namespace bilevel::meta {
namespace {

constexpr int64_t record_bytes = 2 + 3 * 32 * 32;

// The superclass of each class, as the records say; -1 for a class that has none.
void note_superclasses(const CifarBatch& batch, const std::string& path, std::vector<int64_t>& superclass) {
  const int64_t* fine = batch.labels.data_ptr<int64_t>();
  const int64_t* coarse = batch.coarse_labels.data_ptr<int64_t>();
  for (int64_t i = 0; i < batch.labels.numel(); ++i) {
    int64_t& known = superclass[static_cast<size_t>(fine[i])];
    if (known < 0) known = coarse[i];
    if (known != coarse[i]) {
      byte_error(path, i * record_bytes, fmt::format("superclass {} for class {} as before", known, fine[i]),
                 fmt::format("{}", coarse[i]), "the file is damaged, or not CIFAR-100's");
    }
  }
}

}  // namespace

Part fc100_part(int64_t superclass) {
  using enum Part;
  static constexpr std::array parts{
      test,   // aquatic mammals
      train,  // fish
      train,  // flowers
      train,  // food containers
      train,  // fruit and vegetables
      train,  // household electrical devices
      train,  // household furniture
      test,   // insects
      valid,  // large carnivores
      train,  // large man-made outdoor things
      train,  // large natural outdoor scenes
      valid,  // large omnivores and herbivores
      test,   // medium mammals
      valid,  // non-insect invertebrates
      test,   // people
      train,  // reptiles
      valid,  // small mammals
      train,  // trees
      train,  // vehicles 1
      train,  // vehicles 2
  };
  if (superclass < 0 || superclass >= static_cast<int64_t>(parts.size())) {
    throw std::invalid_argument(
        fmt::format("superclass = {}: must be 0 to {}", superclass, parts.size() - 1));
  }
  return parts[static_cast<size_t>(superclass)];
}

ImageTaskSet read_fc100(const std::string& train_file, const std::string& test_file) {
  const std::vector<std::string>& names = image_set("cifar100").classes;
  std::vector<int64_t> superclass(names.size(), -1);
  std::vector<Tensor> images, labels;
  for (const std::string& path : {train_file, test_file}) {
    const CifarBatch batch = read_cifar100(path);
    note_superclasses(batch, path, superclass);
    images.push_back(batch.images);
    labels.push_back(batch.labels);
  }
  ImageTaskSet set;
  set.name = "fc100";
  set.images = group_by_class(at::cat(images), at::cat(labels), names);
  for (size_t k = 0; k < names.size(); ++k) {
    if (superclass[k] >= 0) set.parts.of(fc100_part(superclass[k])).push_back(static_cast<int64_t>(k));
  }
  set.scale = training_scale(set.images, set.parts);
  return set;
}

ImageTaskSet read_fc100(const std::string& folder) {
  const std::string place = find_image_set("cifar100", folder);
  return read_fc100(place + "/train.bin", place + "/test.bin");
}

}  // namespace bilevel::meta
