#pragma once
// A supernet on made-up images, small enough that its exact hypergradient can be had: what `bilevel check
// --problem supernet` looks at.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/nas/supernet_problem.h"
#include "bilevel/problems/registry.h"

namespace bilevel::nas {

struct SyntheticSupernet {
  std::string space = "nasbench201";
  std::vector<std::string> operations = {};  // of the space; empty = all
  int64_t channels = 2;
  int64_t cells = 0;  // 0 = the fewest with both reductions: 1 a stage in NAS-Bench-201, 3 elsewhere
  int64_t image_size = 8;
  int64_t images = 32;         // for training, and as many for validation
  double weight_decay = 5e-4;  // NAS-Bench-201's
  uint64_t seed = 0;           // of the images' noise
  at::TensorOptions tensors = at::TensorOptions().dtype(at::kDouble);
};
SupernetProblem synthetic_supernet(const SyntheticSupernet& options);

// With weight decay and the settings that suit it, under the name of this row.
const ProblemRow& synthetic_supernet_row();
NamedProblem make_synthetic_supernet(const SyntheticSupernet& options);

}  // namespace bilevel::nas
