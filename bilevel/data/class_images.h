#pragma once
// Images that lie class by class, as samplers of few-shot tasks want them.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

// Unlike LabelledImages in the order of their classes, which takes the place of labels.
struct ClassImages {
  Tensor images;                     // uint8, N x C x H x W, CPU
  std::vector<int64_t> begin = {0};  // class k has the images begin[k] .. begin[k+1] - 1
  std::vector<std::string> names;    // of the classes

  int64_t classes() const { return static_cast<int64_t>(names.size()); }
  int64_t count(int64_t k) const {
    return begin.at(static_cast<size_t>(k) + 1) - begin.at(static_cast<size_t>(k));
  }
};

// Images in any order with int64 labels 0 .. names.size() - 1; the order within a class is kept.
ClassImages group_by_class(const Tensor& images, const Tensor& labels, const std::vector<std::string>& names);

}  // namespace bilevel
