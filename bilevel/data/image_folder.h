#pragma once
// A folder of images: one subfolder per class, named like the class, with the class's PNG files in it.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

struct FolderImages {
  Tensor images;  // uint8, N x C x H x W, CPU; one channel if all files are grey, else 3
  Tensor labels;  // int64, N: positions in class_names
  std::vector<std::string> class_names;  // sorted by their bytes, as are the files of a class
};

// Names that begin with a dot, and files that are no images by their endings, are passed over. With
// `image_size` > 0 every image is rescaled to that height and width; otherwise all must be of one size.
// Throws std::runtime_error naming the file or folder that is wrong, and a way out.
FolderImages read_image_folder(const std::string& folder, int64_t image_size = 0);

// The same with classes that are given, such as those of the training folder: a subfolder of another name is
// an error, and a class may have none.
FolderImages read_image_folder(const std::string& folder, const std::vector<std::string>& class_names,
                               int64_t image_size = 0);

// Whether the folder is a pair of such folders, train/ and test/.
bool has_train_and_test(const std::string& folder);

}  // namespace bilevel
