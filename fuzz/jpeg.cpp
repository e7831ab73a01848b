// JPEG images: header alone, and with all pixels.
#include "bilevel/data/jpeg.h"

#include "bilevel/data/picture.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_jpeg(std::string_view bytes) {
  const std::string path = path_of(bytes);
  return taken_file(path, [](const auto& file) { (void)picture_size(file); }) +
         taken_file(path, [&](const auto& file) { (void)decode_jpeg(bytes, file); });
}

const Register jpeg_target("jpeg", give_jpeg);

}  // namespace
}  // namespace bilevel::fuzz
