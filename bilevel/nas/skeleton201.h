#pragma once
// What the search network and the derived networks of NAS-Bench-201 share: the skeleton around the cells.

#include <functional>

#include "bilevel/nas/pass.h"

namespace bilevel::nas {

struct Skeleton201 {
  int64_t channels = 16, cells = 5, classes = 10;
};
// Stem, `cells` cells at C, a residual block of stride 2, cells at 2C, another block, cells at 4C, head.
Feature walk_skeleton201(Pass& pass, const Skeleton201& skeleton, const Feature& images,
                         const std::function<Feature(const Feature&)>& cell);

}  // namespace bilevel::nas
