#pragma once
// PNG files (ISO/IEC 15948) as bytes of pixels, by libpng.

#include <string>
#include <string_view>

#include "bilevel/core/tensor.h"

namespace bilevel {

bool has_png();  // whether the library was built with libpng

// uint8, C x H x W, CPU: one channel for grey, three for colour and palettes. Transparency is dropped and 16
// bits are scaled to 8; gamma and colour profiles are not applied, as other readers of image folders do not.
// What the header promises is checked against limits and against the file's size before memory is taken.
// Throws std::runtime_error naming the file and what is wrong with it, or, where the library was built
// without libpng, what to install.
Tensor read_png(const std::string& path);
// The same of bytes in memory, such as a member of an archive; `name` stands for the file in messages.
Tensor decode_png(std::string_view bytes, const std::string& name);

// The bytes of a PNG file of the same kind of image: uint8, C x H x W with one or three channels. Throws
// std::invalid_argument for anything else, std::runtime_error where the library was built without libpng.
std::string write_png(const Tensor& image);

}  // namespace bilevel
