#pragma once
// Few-shot classes that need no data: Gaussian clouds seen through a fixed nonlinear map. A cloud's place is
// in a few signal directions; along the nuisance directions all classes look alike and examples differ most.
// The map mixes both, so that distances between raw features say little, and a learner that finds the signal
// from the training classes recognises the others by one example.

#include <cstdint>
#include <vector>

#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

struct BlobsOptions {
  int64_t train_classes = 64, valid_classes = 16, test_classes = 20;  // miniImageNet's numbers
  int64_t signal = 4;      // directions in which class means differ, with standard deviation 1
  int64_t nuisance = 4;    // directions that tell nothing
  int64_t features = 32;   // of what the learner sees; at least signal + nuisance, so that nothing is lost
  double noise = 0.25;     // of an example around its class mean, in the signal directions
  double disturbance = 2;  // of an example in the nuisance directions
  void validate() const;
};

class Blobs : public TaskSource {
 public:
  Blobs(const TaskShape& shape, const BlobsOptions& options, uint64_t seed, const at::TensorOptions& tensors);
  int64_t outputs() const override { return shape_.ways; }
  std::vector<int64_t> input_shape() const override { return {options_.features}; }
  int64_t classes(Part part) const override;
  TaskBatch tasks(Part part, int64_t first, int64_t count) const override;

 private:
  TaskShape shape_;
  BlobsOptions options_;
  uint64_t seed_;
  at::TensorOptions tensors_;
  Tensor means_;         // classes of all parts, in their order, x signal; double, CPU, as the map
  Tensor map_, offset_;  // (signal + nuisance) x features, features
};

}  // namespace bilevel::meta
