#pragma once
// What a search works on, made of its options: the space, the images, the supernet or the plan of a random
// search. For the job's own files.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "bilevel/jobs/search.h"
#include "bilevel/nas/benchmark.h"
#include "bilevel/nas/random_search.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel {

struct SearchSetup {
  nas::SearchSpace space = {};
  std::optional<nas::RandomSearch> random = {};     // where the method has no supernet
  std::optional<nas::RandomSearch> baselines = {};  // what to train beside the search
  bool baselines_on_test = false;                   // judged on test images, not on the validation half
  std::optional<nas::Benchmark> benchmark = {};
  std::optional<nas::SupernetProblem> problem = {};
  at::TensorOptions tensors = {};
  std::string digest = {};  // of the images
  Json held_out = {};       // which of them no search sees
  nas::BatchRanks ranks = {};
};

// The space's and the method's defaults in place of what was not given. `chosen`: a diagnosis chose the
// method, and what was given was given to it. Throws OptionError for what the method would ignore.
void complete_search(SearchJobOptions& options, const nas::SearchSpace& space, bool chosen);

// On your own images, of which there may be few: the published defaults are for 25,000, on which alpha takes
// hundreds of steps an epoch. Of what was not given, batches become smaller, alpha's rate larger, so that it
// can go as far in all as there, and the weights go ahead of it by as many steps. What was changed, or
// nothing.
std::string scale_to_images(SearchJobOptions& options, int64_t training_images);

// A resumed run keeps its options, whatever the defaults are now: earlier ones had another method and no
// guard.
void keep_earlier_defaults(SearchJobOptions& options, const StoredRun& run);

// All options have their values afterwards. Images are read where none are handed over.
SearchSetup set_up_search(SearchJobOptions& options, const ImageData* images, RunContext& context);

}  // namespace bilevel
