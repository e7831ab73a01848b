#include "bilevel/data/class_images.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/data/labels.h"

namespace bilevel {

ClassImages group_by_class(const Tensor& images, const Tensor& labels,
                           const std::vector<std::string>& names) {
  if (images.dim() != 4 || images.scalar_type() != at::kByte || labels.dim() != 1 ||
      labels.size(0) != images.size(0)) {
    throw std::invalid_argument("group_by_class: images must be bytes, N x C x H x W, with N labels");
  }
  const auto classes = static_cast<int64_t>(names.size());
  check_labels(labels, classes, /*all_present=*/false, "group_by_class");
  // A counting sort, which is stable.
  const Tensor counts = at::bincount(labels, {}, classes);
  ClassImages result;
  result.names = names;
  for (int64_t k = 0; k < classes; ++k) {
    result.begin.push_back(result.begin.back() + counts[k].item<int64_t>());
  }
  std::vector<int64_t> next(result.begin.begin(), result.begin.end() - 1);
  const Tensor kept = labels.contiguous();
  const int64_t* label = kept.data_ptr<int64_t>();
  Tensor order = at::empty_like(kept);
  for (int64_t i = 0; i < kept.numel(); ++i) {
    order.data_ptr<int64_t>()[next[static_cast<size_t>(label[i])]++] = i;
  }
  result.images = images.index_select(0, order);
  return result;
}

}  // namespace bilevel
