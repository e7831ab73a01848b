#pragma once
// JPEG files (ITU-T T.81) as bytes of pixels, by libjpeg or libjpeg-turbo.

#include <string>
#include <string_view>

#include "bilevel/core/tensor.h"
#include "bilevel/data/picture_size.h"

namespace bilevel {

bool has_jpeg();  // whether the library was built with libjpeg

// uint8, C x H x W, CPU: one channel for grey, three for colour; CMYK is converted. Colour profiles and the
// orientation that a camera notes are not applied, as other readers of image folders do not. What the header
// promises is checked against limits and against the file's size before memory is taken, and a file that ends
// early is refused, not filled with grey. Throws std::runtime_error naming `name` and what is wrong, or,
// where the library was built without libjpeg, what to install.
Tensor decode_jpeg(std::string_view bytes, const std::string& name);
PictureSize jpeg_size(std::string_view bytes, const std::string& name);  // from its header alone

// The bytes of a JPEG file: uint8, C x H x W with one or three channels; quality 1 to 100. Throws
// std::invalid_argument for anything else, std::runtime_error where the library was built without libjpeg.
std::string write_jpeg(const Tensor& image, int quality = 90);

}  // namespace bilevel
