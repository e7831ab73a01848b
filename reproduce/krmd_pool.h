#pragma once
// Classes of an image set as tasks that pull at each other: what the items on K-RMD's table 3 and figure 6
// work on.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/problems/task_sets.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {

struct FeaturePool {
  std::string name;
  int64_t filters = 0;      // random patches that the features are responses to
  Tensor features, labels;  // of all images, train and test together
  int64_t classes = 0;
  std::vector<std::string> class_names;
};

// Of `images_taken` images, balanced by class; 0 = all. Nothing where the set is not in the options' folder.
std::optional<FeaturePool> load_feature_pool(const std::string& name, int64_t images_taken,
                                             const ReproduceOptions& options);

// m examples each for training and validation, balanced; all others test.
TaskSets draw_interaction_trial(const FeaturePool& pool, int64_t m, uint64_t seed,
                                const at::TensorOptions& tensors);

}  // namespace bilevel::reproduce
