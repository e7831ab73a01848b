// libjpeg reports errors by a function that must not return: here it jumps, and a jump must not pass over C++
// objects that want destruction. So everything that can jump is called from functions whose locals are plain
// values, on a state that their caller owns.
#include "bilevel/data/jpeg.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "bilevel/data/file_error.h"

#ifdef BILEVEL_HAS_JPEG
// jpeglib.h needs cstdio before it
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#endif

namespace bilevel {

#ifdef BILEVEL_HAS_JPEG
namespace {

constexpr int64_t largest_jpeg_side = 1 << 14;
constexpr int64_t largest_jpeg_memory = int64_t{1} << 30;  // that libjpeg may take for itself
constexpr int most_scans = 100;                            // cameras and editors write ten or so
// Every block of 8 x 8 pixels takes a bit or more in its first scan.
constexpr int64_t most_pixels_a_byte = 512;

struct JpegErrors {
  jpeg_error_mgr manager{};  // first: libjpeg hands back a pointer to it
  jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
};

[[noreturn]] void on_jpeg_error(j_common_ptr state) {
  auto* errors = reinterpret_cast<JpegErrors*>(state->err);
  state->err->format_message(state, errors->message.data());
  longjmp(errors->jump, 1);
}

// libjpeg goes on after damage with whatever pixels come out; here only what loses none is passed over.
void on_jpeg_message(j_common_ptr state, int level) {
  if (level >= 0) return;
  const int code = state->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
      code == JWRN_BOGUS_PROGRESSION || code == JWRN_MUST_RESYNC || code == JWRN_NOT_SEQUENTIAL) {
    on_jpeg_error(state);
  }
}

void no_jpeg_output(j_common_ptr) {}

void on_jpeg_progress(j_common_ptr state) {
  if (state->is_decompressor == 0) return;
  auto* decoder = reinterpret_cast<j_decompress_ptr>(state);
  if (decoder->input_scan_number > most_scans) {
    state->err->msg_code = JERR_BAD_PROGRESSION;
    on_jpeg_error(state);
  }
}

void set_jpeg_errors(JpegErrors& errors) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = on_jpeg_error;
  errors.manager.emit_message = on_jpeg_message;
  errors.manager.output_message = no_jpeg_output;
}

struct JpegDecoder {
  jpeg_decompress_struct state{};
  JpegErrors errors{};
  jpeg_progress_mgr progress{};

  JpegDecoder() {
    set_jpeg_errors(errors);
    state.err = &errors.manager;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&state); }  // also of one that was not begun
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
};

bool read_jpeg_header(JpegDecoder* decoder, const unsigned char* bytes, unsigned long count) {
  jpeg_decompress_struct* state = &decoder->state;
  if (setjmp(decoder->errors.jump) != 0) return false;
  jpeg_create_decompress(state);
  state->mem->max_memory_to_use = largest_jpeg_memory;
  decoder->progress.progress_monitor = on_jpeg_progress;
  state->progress = &decoder->progress;
  jpeg_mem_src(state, bytes, count);
  jpeg_read_header(state, TRUE);
  return true;
}

// Into `pixels`, rows of `stride` bytes.
bool read_jpeg_rows(JpegDecoder* decoder, unsigned char* pixels, int64_t stride) {
  jpeg_decompress_struct* state = &decoder->state;
  if (setjmp(decoder->errors.jump) != 0) return false;
  jpeg_start_decompress(state);
  while (state->output_scanline < state->output_height) {
    JSAMPROW row = pixels + static_cast<int64_t>(state->output_scanline) * stride;
    jpeg_read_scanlines(state, &row, 1);
  }
  jpeg_finish_decompress(state);
  return true;
}

void begin_jpeg(JpegDecoder& decoder, std::string_view bytes, const std::string& name) {
  if (!bytes.starts_with("\xff\xd8")) {
    byte_error(name, 0, "a JPEG image", bytes.empty() ? "an empty file" : "no signature of JPEG",
               "is it another format under this name? Convert it to JPEG or PNG");
  }
  if (!read_jpeg_header(&decoder, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) {
    file_error(name, "a JPEG image", decoder.errors.message.data(),
               "the file is damaged: copy or make it again");
  }
  const int64_t width = decoder.state.image_width, height = decoder.state.image_height;
  if (width > largest_jpeg_side || height > largest_jpeg_side) {
    file_error(name, fmt::format("sides of at most {} pixels", largest_jpeg_side),
               fmt::format("{} x {}", width, height), "make it smaller, or leave it out");
  }
  if (width * height > most_pixels_a_byte * static_cast<int64_t>(bytes.size())) {
    file_error(name, "a size that the file's bytes can hold",
               fmt::format("{} x {} in {} bytes", width, height, bytes.size()),
               "the file is damaged: copy or make it again");
  }
}

// Print programs write CMYK as what is left of white: 255 is no ink.
Tensor from_inverted_cmyk(const Tensor& pixels) {
  const Tensor wide = pixels.to(at::kInt);
  return (wide.narrow(2, 0, 3) * wide.narrow(2, 3, 1)).div(255, "floor").to(at::kByte);
}

struct JpegEncoder {
  jpeg_compress_struct state{};
  JpegErrors errors{};
  unsigned char* bytes = nullptr;
  unsigned long count = 0;

  JpegEncoder() {
    set_jpeg_errors(errors);
    state.err = &errors.manager;
  }
  ~JpegEncoder() {
    jpeg_destroy_compress(&state);
    std::free(bytes);  // NOLINT: libjpeg takes it by malloc
  }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;
};

bool encode_jpeg(JpegEncoder* encoder, unsigned char* pixels, unsigned height, unsigned width, int channels,
                 int quality) {
  jpeg_compress_struct* state = &encoder->state;
  if (setjmp(encoder->errors.jump) != 0) return false;
  jpeg_create_compress(state);
  jpeg_mem_dest(state, &encoder->bytes, &encoder->count);
  state->image_height = height;
  state->image_width = width;
  state->input_components = channels;
  state->in_color_space = channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(state);
  jpeg_set_quality(state, quality, TRUE);
  jpeg_start_compress(state, TRUE);
  while (state->next_scanline < height) {
    JSAMPROW row =
        pixels + static_cast<size_t>(state->next_scanline) * width * static_cast<unsigned>(channels);
    jpeg_write_scanlines(state, &row, 1);
  }
  jpeg_finish_compress(state);
  return true;
}

}  // namespace

bool has_jpeg() { return true; }

PictureSize jpeg_size(std::string_view bytes, const std::string& name) {
  JpegDecoder decoder;
  begin_jpeg(decoder, bytes, name);
  return {decoder.state.image_height, decoder.state.image_width};
}

Tensor decode_jpeg(std::string_view bytes, const std::string& name) {
  JpegDecoder decoder;
  begin_jpeg(decoder, bytes, name);
  jpeg_decompress_struct& state = decoder.state;
  const bool inks = state.jpeg_color_space == JCS_CMYK || state.jpeg_color_space == JCS_YCCK;
  const bool grey = state.jpeg_color_space == JCS_GRAYSCALE;
  state.out_color_space = inks ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
  const int64_t height = state.image_height, width = state.image_width, channels = inks ? 4 : grey ? 1 : 3;
  Tensor pixels = at::empty({height, width, channels}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  if (!read_jpeg_rows(&decoder, pixels.data_ptr<uint8_t>(), width * channels)) {
    file_error(name, "a whole JPEG image", decoder.errors.message.data(),
               "the file is cut short or damaged: copy or make it again");
  }
  if (inks) pixels = from_inverted_cmyk(pixels);
  return pixels.permute({2, 0, 1}).contiguous();
}

std::string write_jpeg(const Tensor& image, int quality) {
  if (image.dim() != 3 || image.scalar_type() != at::kByte || (image.size(0) != 1 && image.size(0) != 3) ||
      image.numel() == 0) {
    throw std::invalid_argument("write_jpeg: expected bytes of 1 or 3 channels x height x width");
  }
  if (quality < 1 || quality > 100) {
    throw std::invalid_argument(fmt::format("write_jpeg: quality = {}: must be 1 to 100", quality));
  }
  const Tensor pixels = image.permute({1, 2, 0}).contiguous();
  JpegEncoder encoder;
  if (!encode_jpeg(&encoder, pixels.data_ptr<uint8_t>(), static_cast<unsigned>(image.size(1)),
                   static_cast<unsigned>(image.size(2)), static_cast<int>(image.size(0)), quality)) {
    throw std::runtime_error(fmt::format("libjpeg cannot write an image of {} x {}: {}", image.size(2),
                                         image.size(1), encoder.errors.message.data()));
  }
  return {reinterpret_cast<const char*>(encoder.bytes), encoder.count};
}
#else
bool has_jpeg() { return false; }

namespace {
[[noreturn]] void no_jpeg(const std::string& name) {
  file_error(name, "a format that this build of bilevel can read, which has no libjpeg", "a JPEG image",
             "install libjpeg-dev and build again, or convert it to PNG");
}
}  // namespace

Tensor decode_jpeg(std::string_view, const std::string& name) { no_jpeg(name); }
PictureSize jpeg_size(std::string_view, const std::string& name) { no_jpeg(name); }
std::string write_jpeg(const Tensor&, int) {
  throw std::runtime_error("this build of bilevel has no libjpeg: install libjpeg-dev and build again");
}
#endif

}  // namespace bilevel
