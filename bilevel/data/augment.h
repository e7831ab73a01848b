#pragma once
// Batches of images as the published searches feed them: a random flip, a random crop of the zero-padded
// bytes, normalisation, then cutout with zeros (DeVries and Taylor, arXiv:1708.04552). The images stay on
// their device as bytes. The numbers are drawn on the CPU, the same for every device, and a batch costs one
// small transfer and a fixed number of kernels, with no wait for the device.

#include <cstdint>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

// What each byte of each channel becomes, (value - mean) / std, worked out once in double: all devices and
// all paths give the same pixels to the last bit.
struct Normalization {
  Tensor table;  // C x 256; its dtype and device are the batches'

  Normalization() = default;
  // Per channel, of bytes from 0 to 255. Throws std::invalid_argument unless both are finite, of one length,
  // and every deviation is above 0.
  Normalization(const std::vector<double>& mean, const std::vector<double>& std,
                const at::TensorOptions& options);
};

struct AugmentOptions {
  int64_t crop_padding = 4;  // zeros on every side, out of which a crop of the old size is taken; 0 = no crop
  bool flip = true;          // left to right, of every other image on average
  int64_t cutout = 0;        // side of the square set to zero, cut off at the borders; 0 = none

  void validate() const;  // throws std::invalid_argument naming the option, its value and the bound
};

// One row of five whole numbers for each image: flipped or not; the crop's top and left in the padded image;
// the cutout's centre, row and column. int64, count x 5, CPU. Flips, crops and cutouts have streams of their
// own: changing the option of one does not change what the others draw.
Tensor draw_augmentation(int64_t count, int64_t height, int64_t width, const AugmentOptions& options,
                         uint64_t seed);

// images: uint8, all x C x H x W, on the device of the table. index: int64 positions of the batch, on the
// CPU, where they are checked, or on the device, where they are not; undefined = all images in their order.
// Returns N x C x H x W of the table's dtype.
Tensor prepare_batch(const Tensor& images, const Tensor& index, const Normalization& normalization,
                     const AugmentOptions& options, uint64_t seed);
// The same without augmentation.
Tensor prepare_plain(const Tensor& images, const Tensor& index, const Normalization& normalization);
// The same with numbers as draw_augmentation draws them; undefined = no augmentation.
Tensor prepare_with(const Tensor& images, const Tensor& index, const Normalization& normalization,
                    const AugmentOptions& options, const Tensor& numbers);
// prepare_with as tensor operations, which every device and dtype has: float and double on the CPU take a
// faster loop.
Tensor prepare_by_operations(const Tensor& images, const Tensor& index, const Normalization& normalization,
                             const AugmentOptions& options, const Tensor& numbers);

// Unlike LabelledImages on its device, once, with what makes batches of it.
struct DeviceImages {
  Tensor images;  // uint8, N x C x H x W
  Tensor labels;  // int64, N
  Normalization normalization;

  DeviceImages() = default;
  // `options` say the device, and the dtype of the batches.
  DeviceImages(const Tensor& images, const Tensor& labels, const std::vector<double>& mean,
               const std::vector<double>& std, const at::TensorOptions& options);

  int64_t size() const { return images.size(0); }
  Tensor batch(const Tensor& index, const AugmentOptions& augment, uint64_t seed) const {
    return prepare_batch(images, index, normalization, augment, seed);
  }
  // Of batch() the `count` images from `begin`, to the same bits.
  Tensor part(const Tensor& index, int64_t begin, int64_t count, const AugmentOptions& augment,
              uint64_t seed) const;
  Tensor plain(const Tensor& index) const { return prepare_plain(images, index, normalization); }
  Tensor positions(const Tensor& index) const;     // index, or all where it is undefined
  Tensor batch_labels(const Tensor& index) const;  // on the device
};

}  // namespace bilevel
