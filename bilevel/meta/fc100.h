#pragma once
// FC100 (Oreshkin, Rodriguez, Lacoste, "TADAM", 2018, appendix A): the 100 classes of CIFAR-100 with all
// their 600 images, parted by superclass so that no training class is a near relative of a test class.

#include <string>

#include "bilevel/meta/image_tasks.h"

namespace bilevel::meta {

// The part of a superclass (CIFAR-100's coarse label, 0 to 19): 12, 4 and 4 of them.
Part fc100_part(int64_t superclass);

// From CIFAR-100's two files in the official binary format. Throws std::runtime_error naming the file.
ImageTaskSet read_fc100(const std::string& train_file, const std::string& test_file);
// From the folder that holds them, or one in which find_image_set finds "cifar100".
ImageTaskSet read_fc100(const std::string& folder);

}  // namespace bilevel::meta
