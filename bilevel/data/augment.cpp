#include "bilevel/data/augment.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIndexing.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "bilevel/core/random.h"

namespace bilevel {
namespace {

constexpr int64_t columns = 5;  // of draw_augmentation
constexpr int64_t largest_length = int64_t{1} << 16;

void check_images(const Tensor& images, const Normalization& normalization) {
  if (!images.defined() || images.dim() != 4 || images.scalar_type() != at::kByte || images.size(2) < 1 ||
      images.size(3) < 1) {
    throw std::invalid_argument("images: must be bytes, N x C x H x W, H and W at least 1");
  }
  const Tensor& table = normalization.table;
  if (!table.defined() || table.size(0) != images.size(1)) {
    throw std::invalid_argument(fmt::format("normalization: has {} channels, the images have {}",
                                            table.defined() ? table.size(0) : 0, images.size(1)));
  }
  if (table.device() != images.device()) {
    throw std::invalid_argument(fmt::format("normalization: is on {}, the images are on {}",
                                            table.device().str(), images.device().str()));
  }
}

void check_index(const Tensor& images, const Tensor& index) {
  if (!index.defined()) return;
  if (index.dim() != 1 || index.scalar_type() != at::kLong) {
    throw std::invalid_argument("index: must be int64 of one dimension");
  }
  if (index.device() != images.device() && !index.is_cpu()) {
    throw std::invalid_argument(
        fmt::format("index: is on {}, the images are on {}", index.device().str(), images.device().str()));
  }
  if (!index.is_cpu()) return;  // looking would wait for the device
  const Tensor here = index.contiguous();
  const int64_t* position = here.data_ptr<int64_t>();
  for (int64_t i = 0; i < here.numel(); ++i) {
    if (position[i] < 0 || position[i] >= images.size(0)) {
      throw std::invalid_argument(fmt::format("index[{}] = {}: must be 0 to {}, as there are {} images", i,
                                              position[i], images.size(0) - 1, images.size(0)));
    }
  }
}

int64_t batch_size(const Tensor& images, const Tensor& index) {
  return index.defined() ? index.numel() : images.size(0);
}

// `numbers` that are undefined ask for no augmentation.
void check_numbers(const Tensor& numbers, const Tensor& images, int64_t count,
                   const AugmentOptions& options) {
  options.validate();
  if (!numbers.defined()) return;
  if (!numbers.is_cpu() || numbers.scalar_type() != at::kLong || numbers.dim() != 2 ||
      numbers.size(0) != count || numbers.size(1) != columns) {
    throw std::invalid_argument(fmt::format("numbers: must be int64, {} x {}, on the CPU", count, columns));
  }
  const int64_t places = 2 * options.crop_padding + 1;
  const std::array<int64_t, columns> bounds{2, places, places, images.size(2), images.size(3)};
  const Tensor here = numbers.contiguous();
  const int64_t* number = here.data_ptr<int64_t>();
  for (int64_t i = 0; i < count * columns; ++i) {
    const int64_t bound = bounds[static_cast<size_t>(i % columns)];
    if (number[i] < 0 || number[i] >= bound) {
      throw std::invalid_argument(fmt::format("numbers[{}][{}] = {}: must be 0 to {}", i / columns,
                                              i % columns, number[i], bound - 1));
    }
  }
}

// What one row of numbers asks of its image.
struct Change {
  int64_t source;  // which image
  bool flip;
  int64_t down, right;  // where the crop begins in the image; negative in the padding
  int64_t cut_top, cut_bottom, cut_left, cut_right;
};

template <typename Number>
void change_image(const uint8_t* from, const Number* table, int64_t channels, int64_t height, int64_t width,
                  const Change& change, Number* to) {
  // Columns that come from the image; those before and after are padding.
  const int64_t first = std::clamp<int64_t>(-change.right, 0, width);
  const int64_t last = std::clamp<int64_t>(width - change.right, first, width);
  for (int64_t c = 0; c < channels; ++c) {
    const Number* value = table + 256 * c;
    for (int64_t y = 0; y < height; ++y) {
      Number* row = to + (c * height + y) * width;
      const int64_t source_row = y + change.down;
      if (source_row < 0 || source_row >= height) {
        std::fill(row, row + width, value[0]);
      } else {
        const uint8_t* pixel = from + (c * height + source_row) * width;
        std::fill(row, row + first, value[0]);
        if (change.flip) {
          const uint8_t* mirrored = pixel + width - 1 - change.right;
          for (int64_t x = first; x < last; ++x) row[x] = value[*(mirrored - x)];
        } else {
          for (int64_t x = first; x < last; ++x) row[x] = value[*(pixel + (x + change.right))];
        }
        std::fill(row + last, row + width, value[0]);
      }
      if (y >= change.cut_top && y < change.cut_bottom) {
        std::fill(row + change.cut_left, row + change.cut_right, Number{0});
      }
    }
  }
}

Tensor by_loop(const Tensor& images, const Tensor& index, const Normalization& normalization,
               const AugmentOptions& options, const Tensor& numbers) {
  const int64_t count = batch_size(images, index);
  const int64_t channels = images.size(1), height = images.size(2), width = images.size(3);
  const int64_t pixels = channels * height * width;
  const Tensor from = images.contiguous();
  const Tensor positions = index.defined() ? index.contiguous() : Tensor();
  const Tensor drawn = numbers.defined() ? numbers.contiguous() : Tensor();
  const uint8_t* byte = from.data_ptr<uint8_t>();
  const int64_t* position = positions.defined() ? positions.data_ptr<int64_t>() : nullptr;
  const int64_t* number = drawn.defined() ? drawn.data_ptr<int64_t>() : nullptr;
  const auto change_of = [&](int64_t i) {
    Change change{position != nullptr ? position[i] : i, false, 0, 0, 0, 0, 0, 0};
    if (number == nullptr) return change;
    const int64_t* row = number + columns * i;
    change.flip = options.flip && row[0] != 0;
    if (options.crop_padding > 0) {
      change.down = row[1] - options.crop_padding;
      change.right = row[2] - options.crop_padding;
    }
    if (options.cutout > 0) {
      const int64_t half = options.cutout / 2;
      change.cut_top = std::clamp<int64_t>(row[3] - half, 0, height);
      change.cut_bottom = std::clamp<int64_t>(row[3] + half, change.cut_top, height);
      change.cut_left = std::clamp<int64_t>(row[4] - half, 0, width);
      change.cut_right = std::clamp<int64_t>(row[4] + half, change.cut_left, width);
    }
    return change;
  };
  Tensor result = at::empty({count, channels, height, width}, normalization.table.options());
  AT_DISPATCH_FLOATING_TYPES(result.scalar_type(), "prepare_batch", [&] {
    const scalar_t* table = normalization.table.data_ptr<scalar_t>();
    auto* to = result.data_ptr<scalar_t>();
    // An image is a few microseconds: threads pay from some dozens on.
    at::parallel_for(0, count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Change change = change_of(i);
        change_image(byte + change.source * pixels, table, channels, height, width, change, to + i * pixels);
      }
    });
  });
  return result;
}

// All whole numbers of the batch in one transfer: the positions, if they are on the CPU, beside the draws.
// Pinned memory makes it asynchronous; LibTorch keeps it until the copy is done.
Tensor send(const std::vector<Tensor>& parts, const at::Device& device) {
  int64_t width = 0;
  for (const Tensor& part : parts) width += part.size(1);
  const auto options = at::TensorOptions().dtype(at::kLong).device(at::kCPU).pinned_memory(device.is_cuda());
  Tensor all = at::empty({parts[0].size(0), width}, options);
  int64_t at_column = 0;
  for (const Tensor& part : parts) {
    all.narrow(1, at_column, part.size(1)).copy_(part);
    at_column += part.size(1);
  }
  return device.is_cpu() ? all : all.to(device, /*non_blocking=*/true);
}

Tensor by_operations(const Tensor& images, const Tensor& index, const Normalization& normalization,
                     const AugmentOptions& options, const Tensor& numbers) {
  const int64_t count = batch_size(images, index);
  const int64_t channels = images.size(1), height = images.size(2), width = images.size(3);
  const at::Device device = images.device();
  const auto range = [&](int64_t end) {
    return at::arange(end, at::TensorOptions().dtype(at::kLong).device(device));
  };

  const bool index_travels = index.defined() && index.device() != device;
  std::vector<Tensor> parts;
  if (numbers.defined()) parts.push_back(numbers);
  if (index_travels) parts.push_back(index.unsqueeze(1));
  const Tensor sent = parts.empty() ? Tensor() : send(parts, device);
  const Tensor source = index_travels     ? sent.select(1, sent.size(1) - 1)
                        : index.defined() ? index
                                          : range(count);
  const Tensor channel = range(channels).view({1, channels, 1, 1});
  const auto normalised = [&](const Tensor& bytes) {
    return normalization.table.index({channel, bytes.to(at::kLong)});
  };
  if (!numbers.defined()) return normalised(index.defined() ? images.index_select(0, source) : images);

  const auto drawn = [&](int64_t column) { return sent.select(1, column).reshape({count, 1, 1, 1}); };
  const Tensor y = range(height).view({1, 1, height, 1});
  const Tensor x = range(width).view({1, 1, 1, width});
  Tensor row = y;
  Tensor column = x;
  Tensor inside;
  if (options.crop_padding > 0) {
    row = y + (drawn(1) - options.crop_padding);
    column = x + (drawn(2) - options.crop_padding);
    inside = row.ge(0).logical_and(row.lt(height)).logical_and(column.ge(0).logical_and(column.lt(width)));
    row = row.clamp(0, height - 1);
    column = column.clamp(0, width - 1);
  }
  if (options.flip) column = at::where(drawn(0).ne(0), (width - 1) - column, column);
  Tensor bytes = images.index({source.reshape({count, 1, 1, 1}), channel, row, column});
  if (inside.defined()) bytes = bytes * inside;
  Tensor result = normalised(bytes);
  if (options.cutout > 0) {
    const int64_t half = options.cutout / 2;
    const Tensor rows = y.ge(drawn(3) - half).logical_and(y.lt(drawn(3) + half));
    const Tensor cut = rows.logical_and(x.ge(drawn(4) - half).logical_and(x.lt(drawn(4) + half)));
    result = result.masked_fill(cut, 0);
  }
  return result;
}

Tensor prepare(const Tensor& images, const Tensor& index, const Normalization& normalization,
               const AugmentOptions& options, const Tensor& numbers) {
  const at::ScalarType type = normalization.table.scalar_type();
  if (images.is_cpu() && (type == at::kFloat || type == at::kDouble)) {
    return by_loop(images, index, normalization, options, numbers);
  }
  return by_operations(images, index, normalization, options, numbers);
}

}  // namespace

Normalization::Normalization(const std::vector<double>& mean, const std::vector<double>& std,
                             const at::TensorOptions& options) {
  if (mean.empty() || mean.size() != std.size()) {
    throw std::invalid_argument(fmt::format(
        "mean has {} channels and std {}: both must have as many as the images", mean.size(), std.size()));
  }
  const auto channels = static_cast<int64_t>(mean.size());
  Tensor values = at::empty({channels, 256}, at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
  double* value = values.data_ptr<double>();
  for (size_t c = 0; c < mean.size(); ++c) {
    if (!std::isfinite(mean[c]) || !std::isfinite(std[c]) || !(std[c] > 0)) {
      throw std::invalid_argument(
          fmt::format("mean[{0}] = {1}, std[{0}] = {2}: must be finite, std above 0", c, mean[c], std[c]));
    }
    for (int byte = 0; byte < 256; ++byte) *value++ = (byte - mean[c]) / std[c];
  }
  if (!at::isFloatingType(c10::typeMetaToScalarType(options.dtype()))) {
    throw std::invalid_argument("normalization: options.dtype must be a floating type");
  }
  table = values.to(options.device(), c10::typeMetaToScalarType(options.dtype()));
}

void AugmentOptions::validate() const {
  const auto check = [](const char* name, int64_t value) {
    if (value < 0 || value > largest_length) {
      throw std::invalid_argument(
          fmt::format("{} = {}: must be 0 (none) to {} pixels", name, value, largest_length));
    }
  };
  check("crop_padding", crop_padding);
  check("cutout", cutout);
}

Tensor draw_augmentation(int64_t count, int64_t height, int64_t width, const AugmentOptions& options,
                         uint64_t seed) {
  options.validate();
  Tensor numbers = at::empty({count, columns}, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
  int64_t* number = numbers.data_ptr<int64_t>();
  const int64_t places = 2 * options.crop_padding + 1;
  Random flips(named_seed(seed, "flip"));
  Random crops(named_seed(seed, "crop"));
  Random cutouts(named_seed(seed, "cutout"));
  for (int64_t i = 0; i < count; ++i, number += columns) {
    number[0] = flips.below(2);
    number[1] = crops.below(places);
    number[2] = crops.below(places);
    number[3] = cutouts.below(height);
    number[4] = cutouts.below(width);
  }
  return numbers;
}

Tensor prepare_batch(const Tensor& images, const Tensor& index, const Normalization& normalization,
                     const AugmentOptions& options, uint64_t seed) {
  check_images(images, normalization);
  check_index(images, index);
  const Tensor numbers =
      draw_augmentation(batch_size(images, index), images.size(2), images.size(3), options, seed);
  return prepare(images, index, normalization, options, numbers);
}

Tensor prepare_plain(const Tensor& images, const Tensor& index, const Normalization& normalization) {
  check_images(images, normalization);
  check_index(images, index);
  return prepare(images, index, normalization, {}, Tensor());
}

Tensor prepare_with(const Tensor& images, const Tensor& index, const Normalization& normalization,
                    const AugmentOptions& options, const Tensor& numbers) {
  check_images(images, normalization);
  check_index(images, index);
  check_numbers(numbers, images, batch_size(images, index), options);
  return prepare(images, index, normalization, options, numbers);
}

Tensor prepare_by_operations(const Tensor& images, const Tensor& index, const Normalization& normalization,
                             const AugmentOptions& options, const Tensor& numbers) {
  check_images(images, normalization);
  check_index(images, index);
  check_numbers(numbers, images, batch_size(images, index), options);
  return by_operations(images, index, normalization, options, numbers);
}

DeviceImages::DeviceImages(const Tensor& images_, const Tensor& labels_, const std::vector<double>& mean,
                           const std::vector<double>& std, const at::TensorOptions& options)
    : normalization(mean, std, options) {
  if (!labels_.defined() || labels_.dim() != 1 || labels_.scalar_type() != at::kLong || !images_.defined() ||
      images_.dim() < 1 || labels_.numel() != images_.size(0)) {
    throw std::invalid_argument("labels: must be int64, one for each image");
  }
  images = images_.to(options.device()).contiguous();
  labels = labels_.to(options.device()).contiguous();
  check_images(images, normalization);
}

Tensor DeviceImages::positions(const Tensor& index) const {
  return index.defined() ? index : at::arange(images.size(0), at::TensorOptions().dtype(at::kLong));
}

Tensor DeviceImages::part(const Tensor& index, int64_t begin, int64_t count, const AugmentOptions& augment,
                          uint64_t seed) const {
  const Tensor all = positions(index);
  const Tensor numbers = draw_augmentation(all.numel(), images.size(2), images.size(3), augment, seed);
  return prepare_with(images, all.narrow(0, begin, count), normalization, augment,
                      numbers.narrow(0, begin, count));
}

Tensor DeviceImages::batch_labels(const Tensor& index) const {
  check_index(images, index);
  if (!index.defined()) return labels;
  if (index.device() == labels.device()) return labels.index_select(0, index);
  return labels.index_select(0, send({index.unsqueeze(1)}, labels.device()).squeeze(1));
}

}  // namespace bilevel
