#include "bilevel/nas/search_images.h"

#include <ATen/ATen.h>

#include <memory>

#include "bilevel/data/large_tensor.h"

namespace bilevel::nas {
namespace {

ImageSource source_of(const Tensor& images, const Tensor& labels, const Tensor& positions,
                      const ImageData& data, const AugmentOptions& augment,
                      const at::TensorOptions& tensors) {
  const auto held = std::make_shared<const DeviceImages>(
      select_rows(images, positions), labels.index_select(0, positions), data.mean, data.std, tensors);
  ImageSource source;
  source.samples = held->size();
  source.prepare = [held, augment](const Batch& batch) -> LabelledImages {
    return {held->batch(batch.index, augment, batch.seed), held->batch_labels(batch.index)};
  };
  source.part = [held, augment](const Batch& batch, int64_t begin, int64_t count) -> LabelledImages {
    const Tensor here = held->positions(batch.index).narrow(0, begin, count);
    return {held->part(batch.index, begin, count, augment, batch.seed), held->batch_labels(here)};
  };
  source.plain = [held](const Batch& batch) -> LabelledImages {
    return {held->plain(batch.index), held->batch_labels(batch.index)};
  };
  return source;
}

}  // namespace

SearchImages search_images(const ImageData& data, const SearchSplit& split, const AugmentOptions& augment,
                           const at::TensorOptions& tensors) {
  augment.validate();
  SearchImages images;
  images.train = source_of(data.train.images, data.train.labels, split.train, data, augment, tensors);
  images.valid = source_of(data.train.images, data.train.labels, split.valid, data, augment, tensors);
  images.channels = data.train.images.size(1);
  images.height = data.train.images.size(2);
  images.width = data.train.images.size(3);
  images.classes = data.classes;
  return images;
}

SupernetProblem make_supernet_problem(const SearchSpace& space, SupernetOptions options,
                                      const SearchImages& images, const at::TensorOptions& tensors) {
  options.input_channels = images.channels;
  options.height = images.height;
  options.width = images.width;
  options.classes = images.classes;
  return {Supernet(space, options), images.train, images.valid, tensors};
}

}  // namespace bilevel::nas
