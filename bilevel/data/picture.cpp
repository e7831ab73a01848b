#include "bilevel/data/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/folder.h"
#include "bilevel/data/jpeg.h"
#include "bilevel/data/npy_header.h"
#include "bilevel/data/png.h"
#include "bilevel/data/resize.h"

namespace bilevel {
namespace {

constexpr int64_t largest_picture_file = int64_t{1} << 28;

bool is_jpeg(std::string_view bytes, const std::string& path) {
  if (bytes.starts_with("\xff\xd8\xff")) return true;
  if (bytes.starts_with("\x89PNG")) return false;
  byte_error(path, 0, "a PNG or JPEG image", bytes.empty() ? "an empty file" : printable(bytes.substr(0, 8)),
             "is it another format under this name? Convert it to PNG or JPEG");
}

int64_t big_endian_at(std::string_view bytes, size_t at) {
  int64_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

std::string picture_ending(const std::string& name) {
  const size_t dot = name.rfind('.');
  std::string ending = dot == std::string::npos ? "" : name.substr(dot);
  for (char& letter : ending) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return ending;
}

template <size_t n>
bool is_one_of(const std::string& ending, const std::array<const char*, n>& endings) {
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

}  // namespace

bool is_picture_name(const std::string& name) {
  return is_one_of(picture_ending(name), std::array{".png", ".jpg", ".jpeg", ".jpe"});
}

bool is_other_picture_name(const std::string& name) {
  return is_one_of(picture_ending(name),
                   std::array{".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".heic", ".avif"});
}

Tensor read_picture(const std::string& path) {
  const std::string bytes = read_file(path, largest_picture_file);
  return is_jpeg(bytes, path) ? decode_jpeg(bytes, path) : decode_png(bytes, path);
}

PictureSize picture_size(const std::string& path) {
  const std::string bytes = read_file(path, largest_picture_file);
  if (is_jpeg(bytes, path)) return jpeg_size(bytes, path);
  // Its sizes lie in the first chunk. One that cannot be is refused as its pixels would be.
  constexpr size_t width_at = 16, height_at = 20, end = 24;
  if (bytes.size() >= end) {
    const PictureSize size{big_endian_at(bytes, height_at), big_endian_at(bytes, width_at)};
    const int64_t largest = largest_image_side;
    if (size.height >= 1 && size.height <= largest && size.width >= 1 && size.width <= largest) return size;
  }
  const Tensor pixels = decode_png(bytes, path);
  return {pixels.size(1), pixels.size(2)};
}

std::vector<std::string> picture_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const std::string& name : names_in(folder)) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (is_picture_name(name)) {
      files.push_back(path);
    } else if (is_other_picture_name(name)) {
      file_error(path, "a PNG or JPEG file", fmt::format("a {} file", picture_ending(name)),
                 "convert the images to PNG or JPEG");
    }
  }
  return files;
}

}  // namespace bilevel
