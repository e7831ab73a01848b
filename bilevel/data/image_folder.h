#pragma once
// A folder of pictures: one subfolder per class, named like the class, with the class's PNG and JPEG files in
// it.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/data/labelled_images.h"
#include "bilevel/data/picture_size.h"

namespace bilevel {

// Of uint8 on the CPU; one channel if all files are grey, else 3. Labels are positions in class_names.
struct FolderImages : LabelledImages {
  std::vector<std::string> class_names;  // sorted by their bytes, as are the files of a class
  int64_t resized = 0;                   // how many of them
  std::string note;  // where sizes differed and none was asked for: what was done, as a sentence
};

// Names that begin with a dot, and files that are no images by their endings, are passed over. Pictures are
// rescaled to `size`; if it is not set, to the size that at least half of them have, else to that of the
// smallest one. Throws std::runtime_error naming the file or folder that is wrong, and a way out.
FolderImages read_image_folder(const std::string& folder, PictureSize size = {});

// The same with classes that are given, such as those of the training folder: a subfolder of another name is
// an error, and a class may have none.
FolderImages read_image_folder(const std::string& folder, const std::vector<std::string>& class_names,
                               PictureSize size = {});

// Pictures by themselves, without labels and classes. There must be one.
FolderImages read_pictures(const std::vector<std::string>& files, PictureSize size = {});

// Whether the folder is a pair of such folders, train/ and test/.
bool has_train_and_test(const std::string& folder);

// A square of this side; 0 = not set.
inline PictureSize square(int64_t side) { return {side, side}; }

}  // namespace bilevel
