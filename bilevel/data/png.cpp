// libpng reports errors by longjmp, which must not pass over C++ objects that want destruction. So everything
// that can jump is called from two functions whose locals are plain values, on a state that their caller
// owns.
#include "bilevel/data/png.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/npy_header.h"

#ifdef BILEVEL_HAS_PNG
#include <png.h>

#include <csetjmp>
#endif

namespace bilevel {

#ifdef BILEVEL_HAS_PNG
namespace {

constexpr int64_t largest_file = int64_t{1} << 28;
constexpr png_uint_32 largest_side = 1 << 14;
constexpr png_alloc_size_t largest_chunk = 1 << 23;
constexpr int64_t deflate_ratio = 1032;  // deflate cannot expand a byte to more

struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string_view bytes;
  size_t offset = 0;
  std::array<char, 160> message{};

  int64_t height = 0, width = 0, channels = 0;
  int64_t stored_bytes = 0;  // of the pixels as the file holds them, before compression

  Decoder() = default;
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* decoder = static_cast<Decoder*>(png_get_error_ptr(png));
  std::strncpy(decoder->message.data(), message, decoder->message.size() - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep to, size_t count) {
  auto* decoder = static_cast<Decoder*>(png_get_io_ptr(png));
  if (count > decoder->bytes.size() - decoder->offset) png_error(png, "the file's end");
  std::memcpy(to, decoder->bytes.data() + decoder->offset, count);
  decoder->offset += count;
}

// libpng takes memory for a chunk of text as soon as it has read the chunk's length, and its own limit on
// chunks is a warning only: so the lengths are held against the file first.
void check_chunks(const std::string& path, std::string_view bytes) {
  constexpr size_t signature = 8, head = 8, checksum = 4;  // a chunk's head is its length and its name
  for (size_t at = signature; at + head <= bytes.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(bytes[at + i]);
    const std::string_view name = bytes.substr(at + 4, 4);
    const size_t room = bytes.size() - at - head;
    if (length + checksum > room) {
      byte_error(path, static_cast<int64_t>(at),
                 fmt::format("a chunk {} of {} bytes and its checksum", printable(name), length),
                 fmt::format("room for {} bytes", room),
                 "the file is cut short or damaged: copy or make it again");
    }
    if (name == "IEND") return;
    at += head + length + checksum;
  }
}

bool read_header(Decoder* decoder) {
  png_structp png = decoder->png;
  png_infop info = decoder->info;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_user_limits(png, largest_side, largest_side);
  png_set_chunk_malloc_max(png, largest_chunk);
  png_set_read_fn(png, decoder, on_read);
  png_read_info(png, info);
  decoder->stored_bytes = static_cast<int64_t>(png_get_rowbytes(png, info)) * png_get_image_height(png, info);
  png_set_scale_16(png);
  png_set_expand(png);  // palettes to colours, 1, 2 and 4 bits to 8
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  decoder->height = png_get_image_height(png, info);
  decoder->width = png_get_image_width(png, info);
  decoder->channels = png_get_channels(png, info);
  if (png_get_bit_depth(png, info) != 8) png_error(png, "a depth that does not become 8 bits");
  return true;
}

bool read_rows(Decoder* decoder, png_bytepp rows) {
  if (setjmp(png_jmpbuf(decoder->png)) != 0) return false;
  png_read_image(decoder->png, rows);
  png_read_end(decoder->png, nullptr);
  return true;
}

}  // namespace

bool has_png() { return true; }

Tensor read_png(const std::string& path) { return decode_png(read_file(path, largest_file), path); }

Tensor decode_png(std::string_view bytes, const std::string& name) {
  Decoder decoder;
  decoder.bytes = bytes;
  const auto fail = [&](std::string_view hint) {
    byte_error(name, static_cast<int64_t>(decoder.offset), "a PNG image", decoder.message.data(), hint);
  };
  if (png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, bytes.size()) != 0) {
    byte_error(name, 0, "a PNG image", bytes.empty() ? "an empty file" : "no signature of PNG",
               "is it another format under this name? Convert it to PNG");
  }
  check_chunks(name, bytes);
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, on_error, on_warning);
  if (decoder.png != nullptr) decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) throw std::runtime_error("libpng: cannot start");

  if (!read_header(&decoder)) {
    fail(fmt::format("the file is damaged, or has a side above {} pixels", largest_side));
  }
  if (decoder.stored_bytes > deflate_ratio * static_cast<int64_t>(bytes.size())) {
    byte_error(name, 16, "a size that the file's bytes can hold",
               fmt::format("{} x {} in {} bytes", decoder.width, decoder.height, bytes.size()),
               "the file is damaged: copy or make it again");
  }
  const Tensor pixels = at::empty({decoder.height, decoder.width, decoder.channels},
                                  at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  std::vector<png_bytep> rows;
  rows.reserve(static_cast<size_t>(decoder.height));
  for (int64_t i = 0; i < decoder.height; ++i) {
    rows.push_back(pixels.data_ptr<uint8_t>() + i * decoder.width * decoder.channels);
  }
  if (!read_rows(&decoder, rows.data())) fail("the file is damaged: copy or make it again");
  return pixels.permute({2, 0, 1}).contiguous();
}

// By libpng's simplified interface, which reports errors without a jump.
std::string write_png(const Tensor& image) {
  if (image.dim() != 3 || image.scalar_type() != at::kByte || (image.size(0) != 1 && image.size(0) != 3) ||
      image.numel() == 0) {
    throw std::invalid_argument("write_png: expected bytes of 1 or 3 channels x height x width");
  }
  const Tensor pixels = image.permute({1, 2, 0}).contiguous();
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.height = static_cast<png_uint_32>(image.size(1));
  header.width = static_cast<png_uint_32>(image.size(2));
  header.format = image.size(0) == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  std::string bytes;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  bytes.resize(size);
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0, pixels.data_ptr<uint8_t>(), 0, nullptr) ==
      0) {
    throw std::runtime_error(fmt::format("libpng cannot write an image of {} x {}: {}", image.size(2),
                                         image.size(1), header.message));
  }
  bytes.resize(size);
  return bytes;
}
#else
bool has_png() { return false; }

std::string write_png(const Tensor&) {
  throw std::runtime_error("this build of bilevel has no libpng: install libpng-dev and build again");
}

Tensor read_png(const std::string& path) { return decode_png("", path); }

Tensor decode_png(std::string_view, const std::string& name) {
  byte_error(name, 0, "a format that this build of bilevel can read, which has no libpng", "a PNG image",
             "install libpng-dev and build again");
}
#endif

}  // namespace bilevel
