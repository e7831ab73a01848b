#include "bilevel/nas/synthetic_images.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"

namespace bilevel::nas {

void SyntheticImages::validate() const {
  if (samples < 1 || channels < 1 || height < 1 || width < 1 || classes < 2) {
    throw std::invalid_argument(fmt::format(
        "synthetic images: {} samples of {} x {} x {} in {} classes; all must be at least 1, classes 2",
        samples, channels, height, width, classes));
  }
}

LabelledImages draw_images(const SyntheticImages& o, const at::TensorOptions& tensors) {
  o.validate();
  const auto cpu = tensors.device(at::kCPU);
  // A pattern is four by four random numbers, enlarged: what a convolution can see.
  const Tensor coarse = Random(named_seed(1, "patterns")).normal({o.classes, o.channels, 4, 4}, cpu);
  const Tensor patterns = at::upsample_bilinear2d(coarse, {o.height, o.width}, /*align_corners=*/false);
  Random random(named_seed(o.seed, "images"));
  const Tensor labels = at::arange(o.samples, at::kLong).remainder(o.classes);
  const Tensor noise = random.normal({o.samples, o.channels, o.height, o.width}, cpu);
  return {(patterns.index_select(0, labels) + o.noise * noise).to(tensors.device()),
          labels.to(tensors.device())};
}

ImageSource image_source(LabelledImages images) {
  ImageSource source;
  source.samples = images.labels.numel();
  source.prepare = [images = std::move(images)](const Batch& batch) -> LabelledImages {
    if (batch.is_full()) return images;
    const Tensor index = batch.index.to(images.labels.device());
    return {images.images.index_select(0, index), images.labels.index_select(0, index)};
  };
  source.plain = source.prepare;
  return source;
}

}  // namespace bilevel::nas
