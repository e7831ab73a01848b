#include "reproduce/krmd_pool.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "bilevel/core/random.h"
#include "bilevel/data/image_data.h"
#include "bilevel/data/splits.h"

namespace bilevel::reproduce {
namespace {

// Rectified responses to random patches of the images, averaged over the four quarters: a single layer that
// nobody has trained, in the place of the paper's ResNet-18, which was trained on ImageNet.
constexpr int64_t filters = 128, filter_size = 5, images_at_once = 500;

Tensor patch_filters(const Tensor& images, uint64_t seed) {
  Random random(named_seed(seed, "patches"));
  std::vector<Tensor> patches;
  for (int64_t i = 0; i < filters; ++i) {
    const int64_t image = random.below(images.size(0));
    const int64_t row = random.below(images.size(2) - filter_size + 1);
    const int64_t column = random.below(images.size(3) - filter_size + 1);
    const Tensor patch =
        images[image].narrow(1, row, filter_size).narrow(2, column, filter_size).to(at::kFloat).div(255);
    const Tensor centred = patch - patch.mean();
    patches.push_back(centred / (centred.norm() + 0.1));  // of a flat patch its noise is not made large
  }
  return at::stack(patches);
}

Tensor features_of(const Tensor& images, const Tensor& patches,
                   const std::function<void(int64_t)>& progress) {
  std::vector<Tensor> parts;
  for (const Tensor& some : images.split(images_at_once)) {
    const Tensor responses = at::conv2d(some.to(at::kFloat).div(255), patches);
    const Tensor pooled = at::adaptive_avg_pool2d(responses.relu(), {2, 2});
    parts.push_back(pooled.reshape({some.size(0), -1}));
    progress(static_cast<int64_t>(parts.size()) * images_at_once);
  }
  return at::cat(parts);
}

}  // namespace

std::optional<FeaturePool> load_feature_pool(const std::string& name, int64_t images_taken,
                                             const ReproduceOptions& options) {
  ImageDataOptions wanted{.data = name};
  if (!options.data_dir.empty()) wanted.folder = options.data_dir;
  ImageData images;
  try {
    images = load_image_data(wanted);
  } catch (const std::runtime_error&) {
    return std::nullopt;  // the caller names what it found instead
  }
  FeaturePool pool;
  pool.name = name;
  pool.filters = filters;
  pool.classes = images.classes;
  pool.class_names = images.class_names;
  Tensor all = at::cat({images.train.images, images.test.images});
  pool.labels = at::cat({images.train.labels, images.test.labels});
  if (images_taken > 0) {
    const Splits part = make_splits(pool.labels, pool.classes, {.train = images_taken}, Balance::equal,
                                    named_seed(options.seed, "quick part"));
    all = all.index_select(0, part.train);
    pool.labels = pool.labels.index_select(0, part.train);
  }
  const Tensor patches = patch_filters(all, options.seed);
  pool.features = features_of(all, patches, [&](int64_t done) {
    options.progress(
        fmt::format("{}: features of {} of {} images", name, std::min(done, all.size(0)), all.size(0)));
  });
  return pool;
}

// Features are scaled by the training examples' mean and deviation, and with the mean square of a row at 10 a
// rate of 0.1 is stable where the coupling takes its share.
constexpr double row_norm_squared = 10;
TaskSets draw_interaction_trial(const FeaturePool& pool, int64_t m, uint64_t seed,
                                const at::TensorOptions& tensors) {
  const Splits parts = make_splits(pool.labels, pool.classes, {.train = m, .valid = m}, Balance::equal, seed);
  const auto options = at::TensorOptions().dtype(at::kLong);
  Tensor rest = at::ones({pool.labels.numel()}, options.dtype(at::kBool));
  rest.index_fill_(0, at::cat({parts.train, parts.valid}), 0);
  const Tensor seen = pool.features.index_select(0, parts.train);
  const Tensor mean = seen.mean(0), scale = std::sqrt(row_norm_squared / static_cast<double>(seen.size(1))) /
                                            (seen.std(0, /*unbiased=*/false) + 1e-6);
  const auto take = [&](const Tensor& index) -> TaskExamples {
    const Tensor rows = (pool.features.index_select(0, index) - mean) * scale;
    return {rows.to(tensors), pool.labels.index_select(0, index), {}};
  };
  TaskSets sets;
  sets.tasks = sets.classes = pool.classes;
  sets.classes_are_tasks = true;
  sets.task_names = pool.class_names;
  sets.train = take(parts.train);
  sets.valid = take(parts.valid);
  sets.test = take(rest.nonzero().view({-1}));
  return sets;
}

}  // namespace bilevel::reproduce
