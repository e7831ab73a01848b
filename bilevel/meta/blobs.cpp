#include "bilevel/meta/blobs.h"

#include <ATen/ATen.h>

#include <cmath>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"

namespace bilevel::meta {
namespace {

constexpr int64_t largest_classes = 1000000;
constexpr int64_t largest_features = 100000;

at::TensorOptions doubles() { return at::TensorOptions().dtype(at::kDouble).device(at::kCPU); }

}  // namespace

void BlobsOptions::validate() const {
  require_between("blobs: train_classes", train_classes, 2, largest_classes);
  require_between("blobs: valid_classes", valid_classes, 2, largest_classes);
  require_between("blobs: test_classes", test_classes, 2, largest_classes);
  require_between("blobs: signal", signal, 1, largest_features / 2);
  require_between("blobs: nuisance", nuisance, 0, largest_features / 2);
  require_between("blobs: features", features, signal + nuisance, largest_features);
  require_nonnegative("blobs: noise", noise);
  require_nonnegative("blobs: disturbance", disturbance);
}

Blobs::Blobs(const TaskShape& shape, const BlobsOptions& options, uint64_t seed,
             const at::TensorOptions& tensors)
    : shape_(shape), options_(options), seed_(named_seed(seed, "blobs")), tensors_(tensors) {
  shape_.validate();
  options_.validate();
  for (const Part part : {Part::train, Part::valid, Part::test}) {
    require_classes("blobs", part, classes(part), shape_.ways, "make more");
  }
  const int64_t total = options_.train_classes + options_.valid_classes + options_.test_classes;
  means_ = Random(named_seed(seed_, "means")).normal({total, options_.signal}, doubles());
  // Arguments of tanh of standard deviation 1 or so: bent, but not cut off.
  const double variance =
      static_cast<double>(options_.signal) * (1 + options_.noise * options_.noise) +
      static_cast<double>(options_.nuisance) * options_.disturbance * options_.disturbance;
  Random random(named_seed(seed_, "map"));
  map_ = random.normal({options_.signal + options_.nuisance, options_.features}, doubles()) /
         std::sqrt(variance);
  offset_ = random.normal({options_.features}, doubles()) * 0.5;
}

int64_t Blobs::classes(Part part) const {
  return part == Part::train   ? options_.train_classes
         : part == Part::valid ? options_.valid_classes
                               : options_.test_classes;
}

TaskBatch Blobs::tasks(Part part, int64_t first, int64_t count) const {
  require_task_numbers(first, count);
  const int64_t begin = part == Part::train   ? 0
                        : part == Part::valid ? options_.train_classes
                                              : options_.train_classes + options_.valid_classes;
  const int64_t ways = shape_.ways;
  const auto draw = [&](Random& random, const Tensor& class_means, int64_t each) {
    const Tensor near = random.normal({ways * each, options_.signal}, doubles()) * options_.noise;
    const Tensor far = random.normal({ways * each, options_.nuisance}, doubles()) * options_.disturbance;
    const Tensor latent = at::cat({class_means.repeat_interleave(each, 0) + near, far}, 1);
    return (at::matmul(latent, map_) + offset_).tanh();
  };
  // A task at a time: a product of another number of rows may round otherwise.
  std::vector<Tensor> train, valid;
  for (int64_t number = first; number < first + count; ++number) {
    Random random = task_stream(seed_, part, number);
    const std::vector<int64_t> chosen = draw_without_replacement(random, classes(part), ways);
    const Tensor class_means = means_.index_select(0, at::tensor(chosen, at::kLong) + begin);
    train.push_back(draw(random, class_means, shape_.shots));
    valid.push_back(draw(random, class_means, shape_.queries));
  }
  const at::Device device = tensors_.device();
  return {at::stack(train).to(tensors_), class_targets(count, ways, shape_.shots, device),
          at::stack(valid).to(tensors_), class_targets(count, ways, shape_.queries, device)};
}

}  // namespace bilevel::meta
