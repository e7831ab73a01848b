#include "bilevel/meta/image_tasks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/data/image_data.h"

namespace bilevel::meta {
namespace {

constexpr std::array all_parts{Part::train, Part::valid, Part::test};

Tensor indices(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
}

}  // namespace

const std::vector<int64_t>& ClassParts::of(Part part) const {
  return part == Part::train ? train : part == Part::valid ? valid : test;
}
std::vector<int64_t>& ClassParts::of(Part part) {
  return part == Part::train ? train : part == Part::valid ? valid : test;
}

ClassParts split_classes(int64_t classes, int64_t train, int64_t valid, int64_t test, uint64_t seed) {
  if (classes < 0 || train < 1 || valid < 1 || test < 1) {
    throw std::invalid_argument(fmt::format(
        "split_classes: {} classes as {} to {} to {}: all must be at least 1", classes, train, valid, test));
  }
  const double total = static_cast<double>(train + valid + test);
  const auto share = [&](int64_t part) -> int64_t {
    return std::llround(static_cast<double>(classes) * static_cast<double>(part) / total);
  };
  const Tensor order = Random(named_seed(seed, "classes")).permutation(classes);
  const int64_t* number = order.data_ptr<int64_t>();
  const int64_t valid_end = share(valid);
  const int64_t test_end = std::min(valid_end + share(test), classes);
  ClassParts parts;
  parts.valid.assign(number, number + valid_end);
  parts.test.assign(number + valid_end, number + test_end);
  parts.train.assign(number + test_end, number + classes);
  return parts;
}

Tensor scale_pixels(const Tensor& bytes, const PixelScale& scale, const at::TensorOptions& tensors) {
  const auto by_channel = [&](const std::vector<double>& values) {
    return at::tensor(values, at::kDouble).view({-1, 1, 1}).to(tensors);
  };
  return (bytes.to(tensors) - by_channel(scale.mean)) / by_channel(scale.deviation);
}

void ImageTaskSet::validate() const {
  const int64_t classes = images.classes();
  std::vector<const char*> owner(static_cast<size_t>(classes), nullptr);
  for (const Part part : all_parts) {
    for (const int64_t k : parts.of(part)) {
      if (k < 0 || k >= classes) {
        throw std::invalid_argument(fmt::format("{}: class {} of the {} part: must be 0 to {}", name, k,
                                                part_name(part), classes - 1));
      }
      const char*& in = owner[static_cast<size_t>(k)];
      if (in != nullptr) {
        throw std::invalid_argument(fmt::format("{}: class {} is in the {} part and in the {} part", name,
                                                images.names[static_cast<size_t>(k)], in, part_name(part)));
      }
      in = part_name(part);
    }
  }
  const auto channels = static_cast<size_t>(images.images.size(1));
  if (scale.mean.size() != channels || scale.deviation.size() != channels) {
    throw std::invalid_argument(
        fmt::format("{}: a scale of {} channels for images of {}", name, scale.mean.size(), channels));
  }
}

PixelScale training_scale(const ClassImages& images, const ClassParts& parts) {
  std::vector<int64_t> numbers;
  for (const int64_t k : parts.train) {
    for (int64_t i = images.begin.at(static_cast<size_t>(k)); i < images.begin.at(static_cast<size_t>(k) + 1);
         ++i) {
      numbers.push_back(i);
    }
  }
  PixelScale scale;
  measure_channels(images.images.index_select(0, indices(numbers)), scale.mean, scale.deviation);
  return scale;
}

ImageTasks::ImageTasks(ImageTaskSet set, const TaskShape& shape, uint64_t seed,
                       const at::TensorOptions& tensors)
    : set_(std::move(set)), shape_(shape), seed_(named_seed(seed, "images")), tensors_(tensors) {
  shape_.validate();
  set_.validate();
  const int64_t needed = shape_.shots + shape_.queries;
  for (const Part part : all_parts) {
    require_classes(set_.name.c_str(), part, classes(part), shape_.ways, "bring more classes");
    for (const int64_t k : set_.parts.of(part)) {
      if (set_.images.count(k) < needed) {
        throw std::invalid_argument(
            fmt::format("shots = {} and queries = {}: class {} of {} has {} images, and a task takes {} "
                        "different ones; ask for fewer, or bring more images of the class",
                        shape_.shots, shape_.queries, set_.images.names[static_cast<size_t>(k)], set_.name,
                        set_.images.count(k), needed));
      }
    }
  }
  set_.images.images = set_.images.images.to(tensors_.device());
}

std::vector<int64_t> ImageTasks::input_shape() const { return set_.images.images.sizes().slice(1).vec(); }

TaskBatch ImageTasks::tasks(Part part, int64_t first, int64_t count) const {
  require_task_numbers(first, count);
  const std::vector<int64_t>& classes = set_.parts.of(part);
  std::vector<int64_t> train, valid;
  for (int64_t number = first; number < first + count; ++number) {
    Random random = task_stream(seed_, part, number);
    for (const int64_t place :
         draw_without_replacement(random, static_cast<int64_t>(classes.size()), shape_.ways)) {
      const int64_t k = classes[static_cast<size_t>(place)];
      const int64_t begin = set_.images.begin[static_cast<size_t>(k)];
      const std::vector<int64_t> chosen =
          draw_without_replacement(random, set_.images.count(k), shape_.shots + shape_.queries);
      for (size_t i = 0; i < chosen.size(); ++i) {
        (i < static_cast<size_t>(shape_.shots) ? train : valid).push_back(begin + chosen[i]);
      }
    }
  }
  const at::Device device = tensors_.device();
  const auto take = [&](const std::vector<int64_t>& numbers, int64_t each) {
    std::vector<int64_t> sizes = input_shape();
    sizes.insert(sizes.begin(), {count, shape_.ways * each});
    const Tensor bytes = set_.images.images.index_select(0, indices(numbers).to(device));
    return scale_pixels(bytes, set_.scale, tensors_).view(sizes);
  };
  return {take(train, shape_.shots), class_targets(count, shape_.ways, shape_.shots, device),
          take(valid, shape_.queries), class_targets(count, shape_.ways, shape_.queries, device)};
}

}  // namespace bilevel::meta
