#pragma once
// A user's own images, one folder per class: either parted already, ROOT/train/CLASS/*.png beside val (or
// valid) and test, as miniImageNet is laid out; or ROOT/CLASS/*.png, parted here.

#include <cstdint>
#include <string>

#include "bilevel/meta/image_tasks.h"

namespace bilevel::meta {

// Classes of an unparted folder are parted 64 to 16 to 20, as miniImageNet's 100 are, in the same way for
// every seed of a run: classes that one run learned from never test another. image_size: height and width to
// which images are rescaled; 0 leaves them, and they must be of one size. Throws std::runtime_error naming
// the file or folder that is wrong, and a way out.
ImageTaskSet read_task_folder(const std::string& folder, int64_t image_size);

}  // namespace bilevel::meta
