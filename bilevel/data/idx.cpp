#include "bilevel/data/idx.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/large_tensor.h"
#include "bilevel/data/npy_header.h"

namespace bilevel {
namespace {

static_assert(std::endian::native == std::endian::little, "idx files are read by swapping bytes");

constexpr int64_t largest_content = int64_t{1} << 36;
constexpr int most_idx_dimensions = 8;

at::ScalarType type_of(const std::string& path, unsigned char code) {
  switch (code) {
    case 0x08:
      return at::kByte;
    case 0x09:
      return at::kChar;
    case 0x0b:
      return at::kShort;
    case 0x0c:
      return at::kInt;
    case 0x0d:
      return at::kFloat;
    case 0x0e:
      return at::kDouble;
    default:
      byte_error(path, 2, "a type among 0x08 0x09 0x0b 0x0c 0x0d 0x0e", fmt::format("0x{:02x}", code),
                 "is it an IDX file?");
  }
}

int64_t big_endian(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Bytes that may not fit into memory: mapped where they are stored plain, else unpacked into a file.
Tensor read_large(const std::string& path, ByteSource& source, const std::vector<int64_t>& shape,
                  const std::string& after) {
  if (is_stored_plain(path)) {
    const int64_t begin = source.offset();
    Tensor values = map_file(path, begin, shape, at::kByte);
    if (source.most_bytes() != begin + values.numel()) {
      byte_error(path, begin + values.numel(), fmt::format("the file's end after {}", after),
                 fmt::format("{} more bytes", source.most_bytes() - begin - values.numel()),
                 "the file is damaged, or is not an IDX file");
    }
    return values;
  }
  Tensor values = empty_in_memory_or_file(shape, at::kByte);
  constexpr int64_t step = int64_t{1} << 20;
  auto* to = static_cast<char*>(values.data_ptr());
  for (int64_t at = 0; at < values.numel(); at += step) {
    const int64_t count = std::min(step, values.numel() - at);
    const std::string some = read_promised(source, count, after);
    std::memcpy(to + at, some.data(), some.size());
  }
  expect_end(source, after);
  return values;
}

}  // namespace

Tensor read_idx(const std::string& path) {
  const std::unique_ptr<ByteSource> source = open_bytes(path, largest_content);
  const std::string magic = read_promised(*source, 4, "IDX's magic");
  if (magic[0] != 0 || magic[1] != 0) {
    byte_error(path, 0, "two zero bytes, IDX's magic", printable(magic), "is it an IDX file?");
  }
  const at::ScalarType type = type_of(path, static_cast<unsigned char>(magic[2]));
  const int dimensions = static_cast<unsigned char>(magic[3]);
  if (dimensions < 1 || dimensions > most_idx_dimensions) {
    byte_error(path, 3, fmt::format("1 to {} dimensions", most_idx_dimensions), fmt::format("{}", dimensions),
               "is it an IDX file?");
  }
  const std::string header = read_promised(*source, 4 * dimensions, "the dimensions");
  std::vector<int64_t> shape;
  auto count = static_cast<int64_t>(c10::elementSize(type));
  int64_t reach =
      count;  // LibTorch's strides count an empty dimension as 1, so they must not overflow either
  for (int i = 0; i < dimensions; ++i) {
    shape.push_back(big_endian(header.data() + 4 * i));
    if (__builtin_mul_overflow(reach, std::max<int64_t>(shape.back(), 1), &reach)) {
      byte_error(path, 4, "dimensions whose bytes 63 bits can count",
                 fmt::format("{}", fmt::join(shape, " x ")), "the file is damaged, or is not an IDX file");
    }
    count *= shape.back();
  }
  const std::string after = fmt::format("{} values", fmt::join(shape, " x "));
  if (type == at::kByte && count >= bytes_to_map() && source->most_bytes() - source->offset() >= count) {
    return read_large(path, *source, shape, after);
  }
  const std::string values = read_promised(
      *source, count, fmt::format("{} of {} values", fmt::join(shape, " x "), at::toString(type)));
  expect_end(*source, after);

  Tensor result = at::empty(shape, at::TensorOptions().dtype(type).device(at::kCPU));
  if (values.empty()) return result;
  auto* bytes = static_cast<char*>(result.data_ptr());
  std::memcpy(bytes, values.data(), values.size());
  const auto width = static_cast<int64_t>(result.element_size());
  if (width > 1) {
    for (int64_t i = 0; i < result.numel(); ++i) std::reverse(bytes + i * width, bytes + (i + 1) * width);
  }
  return result;
}

Tensor read_idx_images(const std::string& path) {
  const Tensor images = read_idx(path);
  if (images.scalar_type() != at::kByte || images.dim() < 2) {
    byte_error(path, 2, "bytes of two or more dimensions",
               fmt::format("{} of {}", at::toString(images.scalar_type()), images.dim()),
               "are the images and the labels swapped?");
  }
  int64_t pixels = 1;
  for (int64_t i = 1; i < images.dim(); ++i) pixels *= images.size(i);
  return images.reshape({images.size(0), pixels});
}

Tensor read_idx_labels(const std::string& path, int64_t classes) {
  const Tensor labels = read_idx(path);
  if (labels.scalar_type() != at::kByte || labels.dim() != 1) {
    byte_error(path, 2, "bytes of one dimension",
               fmt::format("{} of {}", at::toString(labels.scalar_type()), labels.dim()),
               "are the images and the labels swapped?");
  }
  const uint8_t* label = labels.data_ptr<uint8_t>();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] >= classes) {
      byte_error(path, 8 + i, fmt::format("a label below {}", classes), fmt::format("{}", label[i]),
                 "the file is damaged, or has more classes");
    }
  }
  return labels.to(at::kLong);
}

}  // namespace bilevel
