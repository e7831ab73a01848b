#pragma once
// Few-shot tasks over classes of images, whatever set they come from: the one sampler of Omniglot, FC100 and
// folders.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/data/class_images.h"
#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

// Numbers of classes; no class is in two parts.
struct ClassParts {
  std::vector<int64_t> train, valid, test;
  const std::vector<int64_t>& of(Part part) const;
  std::vector<int64_t>& of(Part part);
};

// All classes, shuffled by the seed and cut into parts whose sizes stand to each other as the three numbers
// do.
ClassParts split_classes(int64_t classes, int64_t train, int64_t valid, int64_t test, uint64_t seed);

// What a network sees of a byte: (byte - mean) / deviation, by channel.
struct PixelScale {
  std::vector<double> mean{0}, deviation{255};
};
// Images of any shape ... x C x H x W to numbers of the options' dtype, on their device.
Tensor scale_pixels(const Tensor& bytes, const PixelScale& scale, const at::TensorOptions& tensors);

struct ImageTaskSet {
  std::string name;  // in messages
  std::string note;  // where pictures were resized without being asked for: a sentence
  ClassImages images;
  ClassParts parts;
  PixelScale scale;
  // Throws std::invalid_argument for a class that is missing or in two parts, or a scale of other channels.
  void validate() const;
};
// Mean and deviation of the training classes: of the others nothing may be known.
PixelScale training_scale(const ClassImages& images, const ClassParts& parts);

class ImageTasks : public TaskSource {
 public:
  // Throws std::invalid_argument naming the part that has fewer classes than shape.ways, or the class that
  // has fewer images than shots and queries take.
  ImageTasks(ImageTaskSet set, const TaskShape& shape, uint64_t seed, const at::TensorOptions& tensors);
  int64_t outputs() const override { return shape_.ways; }
  std::vector<int64_t> input_shape() const override;
  int64_t classes(Part part) const override { return static_cast<int64_t>(set_.parts.of(part).size()); }
  TaskBatch tasks(Part part, int64_t first, int64_t count) const override;

  const PixelScale& scale() const { return set_.scale; }

 private:
  ImageTaskSet set_;  // its images lie on the device of the tasks
  TaskShape shape_;
  uint64_t seed_;
  at::TensorOptions tensors_;
};

}  // namespace bilevel::meta
