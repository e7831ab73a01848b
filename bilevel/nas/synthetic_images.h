#pragma once
// Small made-up images with something to find in them, for checks and tests that need no data: every class
// has its own smooth pattern, hidden in noise.

#include <cstdint>

#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

struct SyntheticImages {
  int64_t samples = 64;
  int64_t channels = 3, height = 8, width = 8;
  int64_t classes = 10;
  double noise = 1;
  uint64_t seed = 0;  // of the noise; the patterns are the same for all seeds
  void validate() const;
};
LabelledImages draw_images(const SyntheticImages& options, const at::TensorOptions& tensors);
// Without augmentation.
ImageSource image_source(LabelledImages images);

}  // namespace bilevel::nas
