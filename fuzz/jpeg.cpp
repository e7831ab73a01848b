// JPEG images: header alone, and with all pixels.
#include "bilevel/data/jpeg.h"

#include "bilevel/data/picture.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int read(std::string_view bytes) {
  const std::string path = path_of(bytes);
  return taken_file(path, [](const auto& file) { (void)picture_size(file); }) +
         taken_file(path, [&](const auto& file) { (void)decode_jpeg(bytes, file); });
}

const Register target("jpeg", read);

}  // namespace
}  // namespace bilevel::fuzz
