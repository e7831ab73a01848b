#pragma once
// A picture in a file of its own, PNG or JPEG.

#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/picture_size.h"

namespace bilevel {

// By the ending of its name: .png, .jpg, .jpeg, .jpe, in capitals too.
bool is_picture_name(const std::string& name);
// .gif, .webp and others: pictures that are not read, and should not be passed over without a word.
bool is_other_picture_name(const std::string& name);

// uint8, C x H x W with one or three channels. The first bytes decide what it is, not the name: many a .jpg
// is a PNG. Throws std::runtime_error as decode_png and decode_jpeg do.
Tensor read_picture(const std::string& path);
PictureSize picture_size(const std::string& path);  // without the pixels

// The pictures that lie in the folder itself, sorted by their bytes. Throws std::runtime_error naming one of
// a format that is not read.
std::vector<std::string> picture_files(const std::string& folder);

}  // namespace bilevel
