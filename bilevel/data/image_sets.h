#pragma once
// The image sets that the papers use: which files they are made of, which package ships them if one does, and
// how to load them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/labelled_images.h"

namespace bilevel {

struct DataFile {
  std::string name;
  int64_t size = 0;
  std::string sha256;  // empty where only the size is known
};

enum class PackageManager {
  debian,
  npm,
  none  // no package ships the set: a user downloads it by hand
};

struct ImageSet {
  std::string name;
  std::vector<DataFile> files;
  PackageManager manager = PackageManager::npm;
  std::string package;               // as the package manager names it, with its version; else an address
  std::string inside;                // the folder of the files in the package
  std::vector<std::string> classes;  // names
  std::string archive = {};          // the file that the authors offer, empty where the files come one by one
  std::string unpacked = {};         // the folder that the archive makes
  std::string other_form = {};       // the folder of the same images in a format that is not read
};

std::vector<std::string> image_set_names();
const ImageSet& image_set(std::string_view name);  // throws std::invalid_argument naming those that exist

struct ImageClasses {
  LabelledImages train, test;        // of uint8, N x 784 or N x 3 x 32 x 32, CPU
  std::vector<std::string> classes;  // names
};

// How a user comes by the files, as the end of a sentence: the command that fetches them, or what to download
// and where to put it.
std::string how_to_get(const ImageSet& set, const std::string& folder);

// The folder that holds all files of the set at their right sizes: `folder`/NAME, else `folder` itself, else
// the folder in it that the authors' archive makes, else where the Debian package puts them. Throws
// std::runtime_error naming the files that are missing or of another size, both sizes, and how to get them.
std::string find_image_set(std::string_view name, const std::string& folder);

// Any set by name from what find_image_set finds.
ImageClasses load_image_classes(std::string_view name, const std::string& folder);

// CIFAR-10's binary format: records of a label byte and 3072 bytes of image, any number of them.
struct CifarBatch : LabelledImages {  // of uint8, N x 3 x 32 x 32
  Tensor coarse_labels;               // int64; of CIFAR-100 alone
};
CifarBatch read_cifar10(const std::string& path);
// CIFAR-100's: a coarse label (0 to 19), a fine label (0 to 99) and the image. `labels` are the fine ones.
CifarBatch read_cifar100(const std::string& path);

}  // namespace bilevel
