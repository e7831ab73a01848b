#pragma once
// Images as a search reads them: on the device once, split into a training and a validation half, batches
// augmented from their seeds.

#include <string>
#include <vector>

#include "bilevel/data/augment.h"
#include "bilevel/data/image_data.h"
#include "bilevel/data/search_split.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

struct SearchImages {
  ImageSource train, valid;
  int64_t channels = 0, height = 0, width = 0, classes = 0;
};
// `tensors`: device and dtype of the batches.
SearchImages search_images(const ImageData& data, const SearchSplit& split, const AugmentOptions& augment,
                           const at::TensorOptions& tensors);

// The supernet of a space for these images; sizes of `options` but channels and cells are taken from the
// images.
SupernetProblem make_supernet_problem(const SearchSpace& space, SupernetOptions options,
                                      const SearchImages& images, const at::TensorOptions& tensors);

}  // namespace bilevel::nas
