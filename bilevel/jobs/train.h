#pragma once
// The job `train`: a cell's network, trained from scratch and tested, on images in files or in memory.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/data/image_data.h"
#include "bilevel/fields/fields.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/nas/train.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

struct TrainJobOptions {
  TrainJobOptions();
  std::string space = "nasbench201";
  std::string genotype = {};       // the cell, as text or JSON
  std::string genotype_file = {};  // or a file that holds it
  int64_t channels = 0, cells = 0;
  bool imagenet = false;
  ImageDataOptions data = {};
  int64_t train_size = 0;  // 0 = all
  // Options that were not given and still have these values are those of the space's recipe.
  nas::TrainOptions train = {};
  std::string batch_norm = {};  // global or rank; empty = global on CPUs
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<TrainJobOptions>& fields();
};

struct TrainJobResult {
  std::string genotype = {}, data = {};
  int64_t parameters = 0, multiply_adds = 0, train_images = 0, test_images = 0;
  nas::TrainState state = {};
  double seconds = 0;
  std::string folder = {};              // empty: nothing is kept
  std::vector<std::string> files = {};  // in it, beside summary.json
  Json json = {};                       // all of it, as summary.json has it
  JobEnd end = {};
};
// Throws OptionError for options that cannot be, RunError for a run that cannot be resumed.
TrainJobResult run_train(TrainJobOptions options, RunContext& context);
// On images in memory; `options.data` is not read. Without a test set a fifth is held out, as of files.
TrainJobResult run_train_on(const ImageData& images, TrainJobOptions options, RunContext& context);

}  // namespace bilevel
