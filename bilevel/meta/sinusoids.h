#pragma once
// Regression tasks of MAML (Finn, Abbeel, Levine 2017, section 5.1): y = a sin(u + p) from k points, with the
// amplitude a in [0.1, 5], the phase p in [0, pi] and u in [-5, 5], all uniform. Parts differ in their draws
// of a and p, which no two tasks share.

#include <cstdint>
#include <vector>

#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

struct SinusoidsOptions {
  double smallest_amplitude = 0.1, largest_amplitude = 5;
  double largest_phase = 3.141592653589793;
  double reach = 5;  // u lies in [-reach, reach]
  double noise = 0;  // standard deviation added to the training targets; MAML has none
  void validate() const;
};

class Sinusoids : public TaskSource {
 public:
  // shape.ways has no meaning here.
  Sinusoids(const TaskShape& shape, const SinusoidsOptions& options, uint64_t seed,
            const at::TensorOptions& tensors);
  bool regression() const override { return true; }
  int64_t outputs() const override { return 1; }
  std::vector<int64_t> input_shape() const override { return {1}; }
  int64_t classes(Part) const override { return 0; }
  TaskBatch tasks(Part part, int64_t first, int64_t count) const override;

 private:
  TaskShape shape_;
  SinusoidsOptions options_;
  uint64_t seed_;
  at::TensorOptions tensors_;
};

}  // namespace bilevel::meta
